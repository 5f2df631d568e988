// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/adam.h"

#include <ATen/Functions.h>

#include <cmath>

namespace hone::optim {

void step_adam_for_loop(ChainLists& lists, const kernels::AdamGroup& o) {
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    torch::Tensor &param = lists.params[i], &mean = lists.momentum[i];
    torch::Tensor& square = lists.second_moment[i];
    torch::Tensor grad = o.maximize ? -lists.grads[i] : lists.grads[i];
    const auto t = static_cast<double>(*lists.fields[i].step);
    if (o.decoupled) {
      param.mul_(1 - o.lr * o.weight_decay);
    } else if (o.weight_decay != 0) {
      grad = grad.add(param, o.weight_decay);
    }
    mean.lerp_(grad, 1 - o.beta1);
    square.mul_(o.beta2).addcmul_(grad, grad, 1 - o.beta2);
    torch::Tensor seen = square;
    if (o.amsgrad) {
      at::maximum_out(lists.extra[i], lists.extra[i], square);
      seen = lists.extra[i];
    }
    const torch::Tensor denominator =
        (seen.sqrt() / std::sqrt(1 - std::pow(o.beta2, t))).add_(o.eps);
    param.addcdiv_(mean, denominator, -o.lr / (1 - std::pow(o.beta1, t)));
  }
}

void step_adam_foreach(ChainLists& lists, const kernels::AdamGroup& o) {
  std::vector<torch::Tensor> grads = o.maximize ? at::_foreach_neg(lists.grads) : lists.grads;
  std::vector<at::Scalar> root_corrections, step_sizes;
  for (const StateFields& fields : lists.fields) {
    const auto t = static_cast<double>(*fields.step);
    root_corrections.emplace_back(std::sqrt(1 - std::pow(o.beta2, t)));
    step_sizes.emplace_back(-o.lr / (1 - std::pow(o.beta1, t)));
  }
  if (o.decoupled) {
    at::_foreach_mul_(lists.params, 1 - o.lr * o.weight_decay);
  } else if (o.weight_decay != 0) {
    grads = at::_foreach_add(grads, lists.params, o.weight_decay);
  }
  at::_foreach_lerp_(lists.momentum, grads, 1 - o.beta1);
  at::_foreach_mul_(lists.second_moment, o.beta2);
  at::_foreach_addcmul_(lists.second_moment, grads, grads, 1 - o.beta2);
  if (o.amsgrad) at::_foreach_maximum_(lists.extra, lists.second_moment);
  std::vector<torch::Tensor> denominators =
      at::_foreach_sqrt(o.amsgrad ? lists.extra : lists.second_moment);
  at::_foreach_div_(denominators, root_corrections);
  at::_foreach_add_(denominators, o.eps);
  at::_foreach_addcdiv_(lists.params, lists.momentum, denominators, step_sizes);
}

template class RuleOptimizer<AdamRule>;
template class RuleOptimizer<AdamWRule>;

}  // namespace hone::optim
