// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/rmsprop.h"

#include <ATen/Functions.h>

namespace hone::optim {

kernels::RMSpropGroup RMSpropRule::group_of(const Options& options) {
  return {.lr = options.lr(),
          .alpha = options.alpha(),
          .eps = options.eps(),
          .weight_decay = options.weight_decay(),
          .momentum = options.momentum(),
          .centered = options.centered(),
          .maximize = options.maximize()};
}
StateFields RMSpropRule::fields_of(State& state) {
  return {.step = &state.step(),
          .momentum = &state.momentum_buffer(),
          .second_moment = &state.square_avg(),
          .extra = &state.grad_avg()};
}
void RMSpropRule::step_for_loop(ChainLists& lists, const Options& options) {
  const double share = 1 - options.alpha();
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor &param = lists.params[i], &square = lists.second_moment[i];
    torch::Tensor grad = options.maximize() ? -lists.grads[i] : lists.grads[i];
    if (options.weight_decay() != 0) grad = grad.add(param, options.weight_decay());
    square.mul_(options.alpha()).addcmul_(grad, grad, share);
    torch::Tensor variance = square;
    if (options.centered()) {
      const torch::Tensor& mean = lists.extra[i].lerp_(grad, share);
      variance = square.addcmul(mean, mean, -1).clamp_min_(0);
    }
    const torch::Tensor root = variance.sqrt().add_(options.eps());
    if (options.momentum() > 0) {
      lists.momentum[i].mul_(options.momentum()).addcdiv_(grad, root);
      param.add_(lists.momentum[i], -options.lr());
    } else {
      param.addcdiv_(grad, root, -options.lr());
    }
  }
}
void RMSpropRule::step_foreach(ChainLists& lists, const Options& options) {
  const double share = 1 - options.alpha();
  std::vector<torch::Tensor> grads =
      options.maximize() ? at::_foreach_neg(lists.grads) : lists.grads;
  if (options.weight_decay() != 0) {
    grads = at::_foreach_add(grads, lists.params, options.weight_decay());
  }
  at::_foreach_mul_(lists.second_moment, options.alpha());
  at::_foreach_addcmul_(lists.second_moment, grads, grads, share);
  std::vector<torch::Tensor> roots;
  if (options.centered()) {
    at::_foreach_lerp_(lists.extra, grads, share);
    roots = at::_foreach_addcmul(lists.second_moment, lists.extra, lists.extra, -1);
    at::_foreach_clamp_min_(roots, 0);
    at::_foreach_sqrt_(roots);
  } else {
    roots = at::_foreach_sqrt(lists.second_moment);
  }
  at::_foreach_add_(roots, options.eps());
  if (options.momentum() > 0) {
    at::_foreach_mul_(lists.momentum, options.momentum());
    at::_foreach_addcdiv_(lists.momentum, grads, roots);
    at::_foreach_add_(lists.params, lists.momentum, -options.lr());
  } else {
    at::_foreach_addcdiv_(lists.params, grads, roots, -options.lr());
  }
}

template class RuleOptimizer<RMSpropRule>;

}  // namespace hone::optim
