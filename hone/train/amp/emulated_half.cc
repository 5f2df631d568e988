// SPDX-License-Identifier: Apache-2.0
#include "hone/train/amp/emulated_half.h"

#include <ATen/Functions.h>
#include <torch/autograd.h>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/codec/loss_scale.h"
#include "hone/train/interop.h"

namespace hone::amp {
namespace {

torch::Tensor rounded(const torch::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.scalar_type() != at::kFloat) {
    fail_unsupported("round_through_half", "an fp32 tensor on the CPU",
                     concat(at::toString(tensor.scalar_type()), " on ", tensor.device().str()));
  }
  const torch::Tensor from = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  torch::Tensor to = at::empty_like(from);  // keeps the strides
  const float* in = from.const_data_ptr<float>();
  auto* out = to.mutable_data_ptr<float>();
  constexpr Index kGrain = 32'768;  // about 10 µs
  libtorch_executor().parallel_for(from.numel(), kGrain, [&](Index begin, Index end, int) {
    kernels::round_through_f16(in + begin, out + begin, end - begin);
  });
  return to;
}

struct RoundThroughHalf : torch::autograd::Function<RoundThroughHalf> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
    return rounded(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0].defined() ? round_through_half(grads[0]) : torch::Tensor()};
  }
};

}  // namespace

torch::Tensor round_through_half(const torch::Tensor& tensor) {
  return RoundThroughHalf::apply(tensor);
}

EmulatedHalfImpl::EmulatedHalfImpl(torch::nn::Sequential layers) : layers_(std::move(layers)) {
  if (layers_.is_empty()) return;
  register_module("layers", layers_);
  for (torch::Tensor& parameter : layers_->parameters()) {
    if (!parameter.requires_grad()) continue;
    hooks_.emplace_back(parameter, parameter.register_hook([](const torch::Tensor& gradient) {
      return round_through_half(gradient);
    }));
  }
}

EmulatedHalfImpl::~EmulatedHalfImpl() {
  for (auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
}

torch::Tensor EmulatedHalfImpl::forward(torch::Tensor x) {
  x = round_through_half(x);
  if (layers_.is_empty()) return x;
  for (torch::nn::AnyModule& layer : *layers_) x = round_through_half(layer.forward(x));
  return x;
}

}  // namespace hone::amp
