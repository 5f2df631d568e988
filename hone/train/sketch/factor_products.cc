// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/factor_products.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include "hone/core/check.h"
#include "hone/kernels/product/product.h"
#include "hone/train/interop.h"

namespace hone::nn::detail {
namespace {

using torch::Tensor;
using WithoutAutocast = c10::impl::ExcludeDispatchKeyGuard;

// The rows for which the kernel is used. The libraries reorder the operands of larger products,
// which they then multiply as fast.
constexpr std::int64_t kMostRows = 256;

kernels::Strided<const float> matrix_of(const Tensor& m) {
  return {m.const_data_ptr<float>(), m.size(0), m.size(1), m.stride(0),
          m.size(1) == 1 ? 1 : m.stride(1)};
}

Tensor multiply_by_kernel(const kernels::Strided<const float>& a,
                          const kernels::Strided<const float>& b, const float* bias = nullptr,
                          decltype(kernels::multiply)& kernel = kernels::multiply) {
  Tensor out = at::empty({a.rows, b.cols}, at::kFloat);
  kernel({a, b, bias, {out.mutable_data_ptr<float>(), a.rows, b.cols, b.cols, 1}},
         libtorch_executor());
  return out;
}

}  // namespace

at::ScalarType lowered_type(const Tensor& x) {
  const c10::DeviceType device = x.device().type();
  const bool lowers = x.scalar_type() != at::kDouble &&
                      at::autocast::is_autocast_available(device) &&
                      at::autocast::is_autocast_enabled(device);
  return lowers ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
}

// matmul.h takes no empty operands: oneDNN has no empty inner product.
FactorProducts factor_products(std::string_view layer, const Tensor& x, const Tensor& weight,
                               MatmulBackend backend) {
  HONE_CHECK(x.device() == weight.device(), layer, concat("x on ", weight.device().str()),
             x.device().str());
  HONE_CHECK(x.is_floating_point(), layer, "x of floating point", at::toString(x.scalar_type()));
  const at::ScalarType type = lowered_type(x);
  HONE_CHECK(type == lowered_type(weight), layer,
             concat("x of type ", at::toString(weight.scalar_type())),
             at::toString(x.scalar_type()));
  const auto is_f32 = [](const Tensor& tensor) {
    return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat;
  };
  if (is_f32(x) && is_f32(weight) && x.numel() > 0) {
    const Products products = products_here(backend);
    const bool uses_kernel =
        x.size(0) <= kMostRows && backend == MatmulBackend::Auto && products.type == at::kFloat;
    return {
        .cpu = products, .type = products.type, .uses_matmul = true, .uses_kernel = uses_kernel};
  }
  return {.cpu = {}, .type = type, .uses_matmul = false};
}

Tensor FactorProducts::operand(const Tensor& tensor) const {
  return uses_matmul ? detail::operand(tensor, cpu) : tensor.to(type);
}

Tensor FactorProducts::by_rows(const Tensor& x, const Tensor& w) const {
  if (uses_kernel) {
    const bool takes_dots =
        x.size(0) < kernels::kFewVectors && x.stride(1) == 1 && w.stride(1) == 1;
    return multiply_by_kernel(matrix_of(w), matrix_of(x).transposed(), nullptr,
                              takes_dots ? kernels::multiply_columns : kernels::multiply)
        .t();
  }
  if (uses_matmul) return multiply(x, w, {}, cpu);
  const WithoutAutocast guard(c10::autocast_dispatch_keyset);
  return at::mm(x, w.t());
}

Tensor FactorProducts::by_columns(const Tensor& x, const Tensor& w, const Tensor& bias) const {
  if (uses_kernel) {
    const Tensor row = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
    return multiply_by_kernel(matrix_of(x), matrix_of(w),
                              row.defined() ? row.const_data_ptr<float>() : nullptr);
  }
  const WithoutAutocast guard(c10::autocast_dispatch_keyset);
  Tensor product = uses_matmul ? multiply_for_input(x, w, cpu) : at::mm(x, w);
  return bias.defined() ? product.add_(bias) : product;
}

Tensor FactorProducts::transposed(const Tensor& x, const Tensor& y) const {
  if (uses_kernel) return multiply_by_kernel(matrix_of(x).transposed(), matrix_of(y));
  if (uses_matmul) return multiply_for_weight(x.contiguous(), y, cpu);
  const WithoutAutocast guard(c10::autocast_dispatch_keyset);
  return at::mm(x.t(), y);
}

}  // namespace hone::nn::detail
