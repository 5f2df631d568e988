// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lion.h"

#include <ATen/Functions.h>

namespace hone::optim {

kernels::LionGroup LionRule::group_of(const Options& options) {
  const auto [beta1, beta2] = options.betas();
  return {.lr = options.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .weight_decay = options.weight_decay(),
          .maximize = options.maximize()};
}
StateFields LionRule::fields_of(State& state) {
  return {.step = &state.step(), .momentum = &state.exp_avg()};
}
void LionRule::step_for_loop(ChainLists& lists, const Options& options) {
  const auto [beta1, beta2] = options.betas();
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    const torch::Tensor grad = options.maximize() ? -lists.grads[i] : lists.grads[i];
    const torch::Tensor direction = lists.momentum[i].lerp(grad, 1 - beta1).sign_();
    lists.params[i].mul_(1 - options.lr() * options.weight_decay()).add_(direction, -options.lr());
    lists.momentum[i].lerp_(grad, 1 - beta2);
  }
}
void LionRule::step_foreach(ChainLists& lists, const Options& options) {
  const auto [beta1, beta2] = options.betas();
  const std::vector<torch::Tensor> grads =
      options.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  std::vector<torch::Tensor> directions = at::_foreach_lerp(lists.momentum, grads, 1 - beta1);
  at::_foreach_sign_(directions);
  at::_foreach_mul_(lists.params, 1 - options.lr() * options.weight_decay());
  at::_foreach_add_(lists.params, directions, -options.lr());
  at::_foreach_lerp_(lists.momentum, grads, 1 - beta2);
}

template class RuleOptimizer<LionRule>;

}  // namespace hone::optim
