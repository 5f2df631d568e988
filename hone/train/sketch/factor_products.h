// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <string_view>

#include "hone/train/nn/matmul.h"

namespace hone::nn::detail {

// The products of a layer's matrices, without gradients. f32 on the CPU uses the products of
// nn/matmul.h, whose results are f32 even if autocast rounds the operands. Everything else uses
// LibTorch in the type of the operands.
struct FactorProducts {
  Products cpu;
  at::ScalarType type = at::kFloat;  // type of the operands
  bool uses_matmul = true;
  bool uses_kernel = false;  // kernels::multiply instead, for f32 in few rows

  torch::Tensor operand(const torch::Tensor& tensor) const;
  // x [m, k] · w [n, k]ᵀ for contiguous x; with the kernel, the columns of the result are
  // contiguous instead of its rows.
  torch::Tensor by_rows(const torch::Tensor& x, const torch::Tensor& w) const;
  // x [m, n] · w [n, k] + bias [k], which may be undefined, for x as by_rows() returns it.
  torch::Tensor by_columns(const torch::Tensor& x, const torch::Tensor& w,
                           const torch::Tensor& bias = {}) const;
  // x [m, n]ᵀ · y [m, k] for contiguous y and any x.
  torch::Tensor transposed(const torch::Tensor& x, const torch::Tensor& y) const;
};

// Returns the products for this thread's autocast scope, with this library for f32 on the CPU. Auto
// uses the kernel if x has few rows. Throws Error{InvalidArgument} that begins with [layer] if the
// devices of x and the weight differ, if their types differ without autocast, or if they are not
// floating-point.
FactorProducts factor_products(std::string_view layer, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               MatmulBackend backend = MatmulBackend::Auto);

// Returns the type that autocast lowers x to on its device, or the type of x.
at::ScalarType lowered_type(const torch::Tensor& x);

}  // namespace hone::nn::detail
