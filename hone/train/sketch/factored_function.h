// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"
#include "hone/train/nn/ops.h"
#include "hone/train/sketch/epilogue.h"

namespace hone::nn::detail {

// The factors of a layer as it multiplies, y = (x aᵀ) b, and which of their rows are trained.
struct FactorRows {
  torch::Tensor a, b;  // [rank, inputs], [rank, outputs]: memory that first and second are parts of
  Index trained = 0;   // rows [0, trained) of a, and of b from this row on:
  Index second_at = 0;
};

struct FactoredCall {
  FactorRows rows;
  Epilogue epilogue = {};
  bool is_training = false;
  bool recompute = false;  // the backward pass computes x aᵀ again instead of keeping it
  MatmulBackend matmul = MatmulBackend::Auto;
};

// dropout(activation((x aᵀ) b + bias)) for contiguous x [n, inputs] as one node of autograd, whose
// gradients are those of x, of the trained rows `first` of a and `second` of b, and of the bias,
// which may be undefined. Keeps x and, without `recompute`, the columns of x aᵀ that meet `second`.
// Results have the type of FactorProducts. Second derivatives are Error{Unsupported}.
torch::Tensor factored_product(const torch::Tensor& x, const torch::Tensor& first,
                               const torch::Tensor& second, const torch::Tensor& bias,
                               const FactoredCall& call);

}  // namespace hone::nn::detail
