// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/train/nn/ops.h"

namespace hone::nn::detail {

// How a layer multiplies: the library of f32 products, resolved, and what operands are rounded to.
struct Products {
  MatmulBackend backend = MatmulBackend::Mkl;
  at::ScalarType type = at::kFloat;
};
// With the type of this thread's autocast scope for CPUs, f32 without one. bf16 is multiplied as
// such; fp16, for which few processors have instructions, has its numerics in f32 arithmetic:
// operands and results are rounded through it, to infinity from 65,520 on.
Products products_here(MatmulBackend backend);

// f32, as an operand of the products below.
torch::Tensor operand(const torch::Tensor& f32, const Products& products);

// Products without gradient of operands [rows, …], contiguous; results are f32.
// x [m, k] · weight [n, k]ᵀ (+ bias, f32).
torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                       const torch::Tensor& bias, const Products& products);
// Gradient by x: grad [m, n] · weight [n, k].
torch::Tensor multiply_for_input(const torch::Tensor& grad, const torch::Tensor& weight,
                                 const Products& products);
// Gradient by weight: grad [m, n]ᵀ · x [m, k], contiguous [n, k].
torch::Tensor multiply_for_weight(const torch::Tensor& grad, const torch::Tensor& x,
                                  const Products& products);

}  // namespace hone::nn::detail
