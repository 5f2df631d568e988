// SPDX-License-Identifier: Apache-2.0
// Argument checks and scaling for the functions of this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "hone/core/index.h"

namespace hone::linalg {

// A matrix whose products neither overflow nor vanish. It is the argument itself, or a copy times a
// power of two if the largest entry is far from 1. The scaling is exact.
struct ScaledMatrix {
  at::Tensor matrix;
  int exponent = 0;  // the argument is matrix * 2^exponent

  // Multiplies the tensor by 2^exponent. Throws Error{InvalidArgument} that begins with [op] if the
  // result overflows its type.
  void unscale(std::string_view op, at::Tensor& tensor) const;
};

// Throws Error{InvalidArgument} that begins with [op] unless the tensor is a dense matrix in f32 or
// f64. The matrix may be empty.
void check_matrix(std::string_view op, std::string_view name, const at::Tensor& tensor);
// Like check_matrix(); also throws Error{Unsupported} unless the matrix is on the CPU.
void check_cpu_matrix(std::string_view op, std::string_view name, const at::Tensor& tensor);

// Scales the matrix. Throws Error{InvalidArgument} if an entry is NaN or infinite.
ScaledMatrix scaled(std::string_view op, std::string_view name, const at::Tensor& matrix);

// The distance from 1 to the next number of the type.
double unit_roundoff(at::ScalarType type);

// Returns the number of leading entries on the diagonal of R [k, n] that are larger than
// `tolerance` times the first one. Absolute values along the diagonal must descend.
Index leading_rank(const at::Tensor& r, double tolerance);

// Returns a b in full precision, without autocast. In f32 on the CPU it uses the faster one of
// LibTorch's libraries.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// Returns a b^T, like product().
at::Tensor product_transposed(const at::Tensor& a, const at::Tensor& b);

}  // namespace hone::linalg
