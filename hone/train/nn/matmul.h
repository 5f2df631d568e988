// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/train/nn/epilogue.h"
#include "hone/train/nn/ops.h"

namespace hone::nn::detail {

// The library of f32 products, resolved, and the type that operands are rounded to.
struct Products {
  MatmulBackend backend = MatmulBackend::Mkl;
  at::ScalarType type = at::kFloat;
};
// Returns the products for this thread. The type is that of the thread's CPU autocast scope, or f32
// without one. bf16 is multiplied natively. fp16, which few processors support, is emulated in f32:
// operands and results are rounded to fp16, to infinity from 65,520 on.
Products products_here(MatmulBackend backend);

// Converts an f32 tensor to an operand of the products below.
torch::Tensor operand(const torch::Tensor& f32, const Products& products);

// Products of contiguous operands [rows, …] without gradient. Results are f32. Each is preceded by
// check_stop().
// activation(x [m, k] · weight [n, k]ᵀ + bias + residual [m, n]); bias and residual are f32 or
// undefined.
struct ProductEpilogue {
  torch::Tensor bias = {}, residual = {};
  Activation activation = Activation::None;
};
torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                       const ProductEpilogue& epilogue, const Products& products);
// The gradient with respect to x: grad [m, n] · weight [n, k].
torch::Tensor multiply_for_input(const torch::Tensor& grad, const torch::Tensor& weight,
                                 const Products& products);
// The gradient with respect to weight: grad [m, n]ᵀ · x [m, k], contiguous [n, k].
torch::Tensor multiply_for_weight(const torch::Tensor& grad, const torch::Tensor& x,
                                  const Products& products);

}  // namespace hone::nn::detail
