// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/linear.h"

#include <ATen/ATen.h>

#include <typeinfo>

namespace hone::nn {

using torch::Tensor;

// LibTorch's constructor draws weights from its own generator: as few as it can.
LinearImpl::LinearImpl(Index in_features, Index out_features, bool has_bias, MatmulBackend backend)
    : torch::nn::LinearImpl(torch::nn::LinearOptions(1, 1).bias(has_bias)), backend_(backend) {
  options.in_features(in_features).out_features(out_features);
  weight.set_data(at::zeros({out_features, in_features}));
  if (has_bias) bias.set_data(at::zeros({out_features}));
}

Tensor LinearImpl::forward(const Tensor& x) { return linear(x, weight, bias, backend_); }

std::shared_ptr<torch::nn::Module> LinearImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::make_shared<LinearImpl>(options.in_features(), options.out_features(),
                                                 options.bias(), backend_);
  const auto take = [&](const Tensor& from, Tensor& to) {
    if (!from.defined()) return;
    to.set_data(from.detach().to(device.value_or(from.device()), from.scalar_type(),
                                 /*non_blocking=*/false, /*copy=*/true));
    to.set_requires_grad(from.requires_grad());
  };
  take(weight, copy->weight);
  take(bias, copy->bias);
  copy->train(is_training());
  return copy;
}

namespace dense {

Tensor LinearImpl::forward(const Tensor& x) { return at::linear(x, weight, bias); }

std::shared_ptr<torch::nn::Module> LinearImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = torch::nn::LinearImpl::clone(device);
  return std::make_shared<LinearImpl>(dynamic_cast<const torch::nn::LinearImpl&>(*copy));
}

}  // namespace dense

torch::nn::LinearImpl* exact_linear(torch::nn::Module& module) {
  const bool is_exact = typeid(module) == typeid(torch::nn::LinearImpl) ||
                        typeid(module) == typeid(LinearImpl) ||
                        typeid(module) == typeid(dense::LinearImpl);
  return is_exact ? module.as<torch::nn::LinearImpl>() : nullptr;
}

}  // namespace hone::nn
