// SPDX-License-Identifier: Apache-2.0
#include "hone/train/nn/fused_linear.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"
#include "hone/train/nn/matmul.h"
#include "hone/train/random_state.h"

namespace hone::nn {

using torch::Tensor;

Tensor linear_add(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& residual) {
  const bool fits = !at::GradMode::is_enabled() && takes_fused_kernels(x) &&
                    takes_fused_kernels(residual) && takes_fused_kernels(weight) && x.numel() > 0;
  if (!fits) return linear(x, weight, bias, MatmulBackend::Auto) + residual;
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  HONE_CHECK(x.size(-1) == weight.size(1) && residual.sizes().equals(sizes), "linear_add",
             concat("x [..., ", weight.size(1), "] and a residual [..., ", weight.size(0), "]"),
             concat(c10::str(x.sizes()), " and ", c10::str(residual.sizes())));
  const auto products = detail::products_here(MatmulBackend::Auto);
  const Tensor rows = x.reshape({-1, x.size(-1)}).contiguous();
  return detail::multiply(detail::operand(rows, products), detail::operand(weight, products),
                          {.bias = bias, .residual = residual.reshape({rows.size(0), -1})},
                          products)
      .view(sizes);
}

FusedLinearImpl::FusedLinearImpl(const torch::nn::LinearImpl& linear, Activation activation)
    : torch::nn::LinearImpl(linear), activation_(activation) {}

Tensor FusedLinearImpl::forward(const Tensor& x) {
  return linear(x, weight, bias, MatmulBackend::Auto, activation_);
}

std::shared_ptr<torch::nn::Module> FusedLinearImpl::clone(
    const std::optional<torch::Device>& device) const {
  const RandomState random;  // LibTorch's clone draws weights before it copies
  const auto copy = torch::nn::LinearImpl::clone(device);
  random.restore();
  return std::make_shared<FusedLinearImpl>(dynamic_cast<const torch::nn::LinearImpl&>(*copy),
                                           activation_);
}

}  // namespace hone::nn
