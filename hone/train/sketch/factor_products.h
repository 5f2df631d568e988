// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>

#include "hone/train/nn/matmul.h"

namespace hone::nn::detail {

// The products of a layer's matrices, without gradients: of f32 on the CPU as in nn/matmul.h, whose
// results are f32 also where autocast rounds the operands, of everything else by LibTorch in the
// type of the operands.
struct FactorProducts {
  Products cpu;
  at::ScalarType type = at::kFloat;  // of the operands
  bool uses_matmul = true;

  torch::Tensor operand(const torch::Tensor& tensor) const;
  // x [m, k] · w [n, k]ᵀ, x [m, n] · w [n, k], and x [m, n]ᵀ · y [m, k]. x, w and y are contiguous
  // operands; the results are contiguous.
  torch::Tensor by_rows(const torch::Tensor& x, const torch::Tensor& w) const;
  torch::Tensor by_columns(const torch::Tensor& x, const torch::Tensor& w) const;
  torch::Tensor transposed(const torch::Tensor& x, const torch::Tensor& y) const;
};

// Those that this thread's autocast scope asks for, with this library for f32 on the CPU.
// Error{InvalidArgument} that begins with [layer] where x and the weight differ in device, or
// without autocast in type, or are not of floating point.
FactorProducts factor_products(std::string_view layer, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               MatmulBackend backend = MatmulBackend::Auto);

// The type that autocast lowers x to on its device, or that of x.
at::ScalarType lowered_type(const torch::Tensor& x);

}  // namespace hone::nn::detail
