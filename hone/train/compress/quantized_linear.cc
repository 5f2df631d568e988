// SPDX-License-Identifier: Apache-2.0
#include "hone/train/compress/quantized_linear.h"

#include <ATen/ATen.h>

#include <utility>

#include "hone/core/check.h"

namespace hone::nn {

using torch::Tensor;

QuantizedLinearImpl::QuantizedLinearImpl(StoredWeight weight, const Tensor& bias)
    : weight_(std::move(weight)) {
  weight_.register_in(*this, "weight");
  if (bias.defined()) bias_ = register_buffer("bias", bias.detach().to(at::kFloat).clone());
}

void QuantizedLinearImpl::reset() {
  weight_ = weight_.fresh();
  weight_.register_in(*this, "weight");
  if (bias_.defined()) bias_ = register_buffer("bias", at::zeros_like(bias_));
}

Tensor QuantizedLinearImpl::forward(const Tensor& x) {
  const Index in = weight_.cols(), out = weight_.rows();
  HONE_CHECK(x.dim() >= 1 && x.size(-1) == in, "QuantizedLinear", concat("x [..., ", in, "]"),
             c10::str(x.sizes()));
  HONE_CHECK(x.is_floating_point(), "QuantizedLinear", "x of floating point",
             at::toString(x.scalar_type()));
  if (product() == ProductKind::Decoded || !takes_packed_kernels(x)) {
    const bool keep = product() == ProductKind::Decoded || !x.device().is_cpu();
    const auto cast = [&](const Tensor& tensor) { return tensor.to(x.scalar_type()); };
    return at::linear(x, cast(weight_.decoded(keep)),
                      bias_.defined() ? std::optional(cast(bias_)) : std::nullopt);
  }
  const at::NoGradGuard no_grad;
  const Tensor rows = x.detach().reshape({-1, in}).contiguous();
  const Tensor y = at::empty({rows.size(0), out}, rows.options());
  weight_.multiply(rows.data_ptr<float>(), rows.size(0), y.data_ptr<float>(), out,
                   bias_.defined() ? bias_.data_ptr<float>() : nullptr, nullptr,
                   libtorch_executor());
  auto sizes = x.sizes().vec();
  sizes.back() = out;
  return y.view(sizes);
}

}  // namespace hone::nn
