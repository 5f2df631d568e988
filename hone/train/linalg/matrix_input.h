// SPDX-License-Identifier: Apache-2.0
// What the functions of this folder do with their arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "hone/core/index.h"

namespace hone::linalg {

// A matrix whose products neither overflow nor vanish: the argument itself, or a copy times a power
// of two where its largest entry is far from 1. That power changes no other bit.
struct ScaledMatrix {
  at::Tensor matrix;
  int exponent = 0;  // the argument is matrix * 2^exponent

  // Multiplies it by 2^exponent. Error{InvalidArgument} that begins with [op] if its type cannot
  // hold the result.
  void unscale(std::string_view op, at::Tensor& tensor) const;
};

// Error{InvalidArgument} that begins with [op] unless the tensor is a dense matrix in f32 or f64;
// empty matrices pass.
void check_matrix(std::string_view op, std::string_view name, const at::Tensor& tensor);
// The same, and Error{Unsupported} unless it is on the CPU.
void check_cpu_matrix(std::string_view op, std::string_view name, const at::Tensor& tensor);

// Error{InvalidArgument} on entries that are NaN or infinite.
ScaledMatrix scaled(std::string_view op, std::string_view name, const at::Tensor& matrix);

// The distance from 1 to the next number of the type.
double unit_roundoff(at::ScalarType type);

// How many leading entries of the diagonal of R [k, n], whose sizes descend, are larger than
// `tolerance` times the first one.
Index leading_rank(const at::Tensor& r, double tolerance);

// a b without autocast and in full precision; in f32 on the CPU by the faster of LibTorch's
// libraries.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
// a b^T
at::Tensor product_transposed(const at::Tensor& a, const at::Tensor& b);

}  // namespace hone::linalg
