// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/train/nn/ops.h"

namespace hone::nn::detail {

// Products without gradient, f32 [rows, …] contiguous. `backend` is resolved.
// x [m, k] · weight [n, k]ᵀ (+ bias).
torch::Tensor multiply(const torch::Tensor& x, const torch::Tensor& weight,
                       const torch::Tensor& bias, MatmulBackend backend);
// Gradient by x: grad [m, n] · weight [n, k].
torch::Tensor multiply_for_input(const torch::Tensor& grad, const torch::Tensor& weight,
                                 MatmulBackend backend);
// Gradient by weight: grad [m, n]ᵀ · x [m, k], contiguous [n, k].
torch::Tensor multiply_for_weight(const torch::Tensor& grad, const torch::Tensor& x,
                                  MatmulBackend backend);

}  // namespace hone::nn::detail
