// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/adagrad.h"

#include <ATen/Functions.h>

#include "hone/kernels/multi_tensor/schedule/check_step.h"

namespace hone::optim {

kernels::AdagradGroup AdagradRule::group_of(const Options& options) {
  kernels::check_at_least_zero(kName, "initial_accumulator_value",
                               options.initial_accumulator_value());
  return {.lr = options.lr(),
          .lr_decay = options.lr_decay(),
          .weight_decay = options.weight_decay(),
          .eps = options.eps(),
          .maximize = options.maximize()};
}
float AdagradRule::initial_second_moment(const Options& options) {
  return static_cast<float>(options.initial_accumulator_value());
}
StateFields AdagradRule::fields_of(State& state) {
  return {.step = &state.step(), .second_moment = &state.sum()};
}
void AdagradRule::step_for_loop(ChainLists& lists, const Options& options) {
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor &param = lists.params[i], &sum = lists.second_moment[i];
    torch::Tensor grad = options.maximize() ? -lists.grads[i] : lists.grads[i];
    if (options.weight_decay() != 0) grad = grad.add(param, options.weight_decay());
    const auto before = static_cast<double>(*lists.fields[i].step - 1);
    sum.addcmul_(grad, grad);
    param.addcdiv_(grad, sum.sqrt().add_(options.eps()),
                   -options.lr() / (1 + before * options.lr_decay()));
  }
}
void AdagradRule::step_foreach(ChainLists& lists, const Options& options) {
  std::vector<torch::Tensor> grads =
      options.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  if (options.weight_decay() != 0) {
    grads = at::_foreach_add(grads, lists.params, options.weight_decay());
  }
  std::vector<at::Scalar> rates;
  for (const StateFields& fields : lists.fields) {
    rates.emplace_back(-options.lr() /
                       (1 + static_cast<double>(*fields.step - 1) * options.lr_decay()));
  }
  at::_foreach_addcmul_(lists.second_moment, grads, grads, 1);
  std::vector<torch::Tensor> roots = at::_foreach_sqrt(lists.second_moment);
  at::_foreach_add_(roots, options.eps());
  at::_foreach_addcdiv_(lists.params, grads, roots, rates);
}

template class RuleOptimizer<AdagradRule>;

}  // namespace hone::optim
