// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/matrix_input.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/train/nn/matmul.h"

namespace hone::linalg {
namespace {

using at::Tensor;

// Squares of 2^40 numbers between the inverse of these and these can be summed.
constexpr int kMostExponentF32 = 40, kMostExponentF64 = 400;

nn::detail::Products products() {
  static const nn::MatmulBackend backend = nn::resolve(nn::MatmulBackend::Auto);
  return {.backend = backend, .type = at::kFloat};
}

bool is_f32_on_cpu(const Tensor& a) { return a.is_cpu() && a.scalar_type() == at::kFloat; }

// In two steps, because f32 has no 2^148, the inverse of its smallest number.
void multiply_by_power(Tensor& tensor, int exponent) {
  const int half = exponent / 2;
  tensor.mul_(std::ldexp(1.0, half)).mul_(std::ldexp(1.0, exponent - half));
}

}  // namespace

void check_matrix(std::string_view op, std::string_view name, const Tensor& tensor) {
  HONE_REQUIRE(tensor.defined(), op, concat("The ", name, " is an undefined tensor."));
  HONE_CHECK(tensor.layout() == at::kStrided, op, concat("a dense ", name),
             c10::str(tensor.layout()));
  HONE_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble, op,
             concat("a ", name, " in float32 or float64"), at::toString(tensor.scalar_type()));
  HONE_CHECK(tensor.dim() == 2, op, concat("a ", name, " of 2 dimensions"),
             c10::str(tensor.sizes()));
}

void check_cpu_matrix(std::string_view op, std::string_view name, const Tensor& tensor) {
  check_matrix(op, name, tensor);
  if (!tensor.is_cpu()) {
    fail_unsupported(op, concat("a ", name, " on the CPU, as pivoting runs there only"),
                     tensor.device().str());
  }
}

void ScaledMatrix::unscale(std::string_view op, Tensor& tensor) const {
  if (exponent == 0) return;
  multiply_by_power(tensor, exponent);
  const bool is_finite = tensor.numel() == 0 || std::isfinite(tensor.abs().max().item<double>());
  HONE_REQUIRE(
      is_finite, op,
      concat("The result is beyond the range of ", at::toString(tensor.scalar_type()), "."));
}

ScaledMatrix scaled(std::string_view op, std::string_view name, const Tensor& matrix) {
  if (matrix.numel() == 0) return {matrix};
  const auto [least, most] = matrix.aminmax();
  const double low = least.item<double>(), high = most.item<double>();
  HONE_REQUIRE(std::isfinite(low) && std::isfinite(high), op,
               concat("The ", name, " has entries that are NaN or infinite."));
  const double size = std::max(-low, high);
  const int limit = matrix.scalar_type() == at::kFloat ? kMostExponentF32 : kMostExponentF64;
  int exponent = 0;
  std::frexp(size, &exponent);
  if (size == 0 || std::abs(exponent) <= limit) return {matrix};
  ScaledMatrix result{matrix.clone(), exponent};
  multiply_by_power(result.matrix, -exponent);
  return result;
}

double unit_roundoff(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon()
                             : std::numeric_limits<float>::epsilon();
}

Index leading_rank(const Tensor& r, double tolerance) {
  const Tensor sizes = r.diagonal().abs().to(at::kDouble).contiguous();
  const double* size = sizes.const_data_ptr<double>();
  Index rank = 0;
  while (rank < sizes.numel() && size[rank] > tolerance * size[0]) ++rank;
  return rank;
}

Tensor product(const Tensor& a, const Tensor& b) {
  return is_f32_on_cpu(a) ? nn::detail::multiply_for_input(a, b, products()) : at::mm(a, b);
}

Tensor product_transposed(const Tensor& a, const Tensor& b) {
  return is_f32_on_cpu(a) ? nn::detail::multiply(a, b, {}, products()) : at::mm(a, b.t());
}

}  // namespace hone::linalg
