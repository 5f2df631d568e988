// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/sgd.h"

#include <ATen/Functions.h>

namespace hone::optim {

void CountedSGDState::serialize(torch::serialize::OutputArchive& archive) const {
  torch::optim::SGDParamState::serialize(archive);
  archive.write("step", c10::IValue(step()));
}
void CountedSGDState::serialize(torch::serialize::InputArchive& archive) {
  torch::optim::SGDParamState::serialize(archive);
  c10::IValue stored;
  step(archive.try_read("step", stored) ? stored.toInt() : momentum_buffer().defined());
}

kernels::SGDGroup SGDRule::group_of(const Options& options) {
  return {.lr = options.lr(),
          .momentum = options.momentum(),
          .dampening = options.dampening(),
          .weight_decay = options.weight_decay(),
          .nesterov = options.nesterov(),
          .maximize = options.maximize()};
}
StateFields SGDRule::fields_of(State& state) {
  return {.step = &state.step(), .momentum = &state.momentum_buffer()};
}
void SGDRule::step_for_loop(ChainLists& lists, const Options& o) {
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor& param = lists.params[i];
    torch::Tensor grad = o.maximize() ? -lists.grads[i] : lists.grads[i];
    if (o.weight_decay() != 0) grad = grad.add(param, o.weight_decay());
    if (o.momentum() != 0) {
      torch::Tensor& buffer = lists.momentum[i];
      if (*lists.fields[i].step == 1) {
        buffer.copy_(grad);
      } else {
        buffer.mul_(o.momentum()).add_(grad, 1 - o.dampening());
      }
      grad = o.nesterov() ? grad.add(buffer, o.momentum()) : buffer;
    }
    param.add_(grad, -o.lr());
  }
}
void SGDRule::step_foreach(ChainLists& lists, const Options& o) {
  std::vector<torch::Tensor> grads = o.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  if (o.weight_decay() != 0) grads = at::_foreach_add(grads, lists.params, o.weight_decay());
  if (o.momentum() != 0) {
    // A first step starts from zero and takes the whole gradient: keep 0, share 1.
    std::vector<at::Scalar> keep, share;
    for (const StateFields& fields : lists.fields) {
      const bool first = *fields.step == 1;
      keep.emplace_back(first ? 0.0 : o.momentum());
      share.emplace_back(first ? 1.0 : 1 - o.dampening());
    }
    at::_foreach_mul_(lists.momentum, keep);
    at::_foreach_add_(lists.momentum, at::_foreach_mul(grads, share));
    grads = o.nesterov() ? at::_foreach_add(grads, lists.momentum, o.momentum()) : lists.momentum;
  }
  at::_foreach_add_(lists.params, grads, -o.lr());
}

template class RuleOptimizer<SGDRule>;

}  // namespace hone::optim
