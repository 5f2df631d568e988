// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include "hone/core/index.h"
#include "hone/train/nn/epilogue.h"
#include "hone/train/nn/ops.h"

namespace hone::nn::detail {

// The factors of a layer as it multiplies, y = (x aᵀ) b, and the rows that are trained.
struct FactorRows {
  torch::Tensor a, b;  // [rank, inputs], [rank, outputs]: memory that contains first and second
  Index trained = 0;   // trained rows: [0, trained) of a, and [second_at, second_at + trained) of b
  Index second_at = 0;
};

struct FactoredCall {
  FactorRows rows;
  Epilogue epilogue = {};
  bool is_training = false;
  bool recompute = false;  // the backward pass recomputes x aᵀ
  MatmulBackend matmul = MatmulBackend::Auto;
};

// Returns dropout(activation((x aᵀ) b + bias)) for contiguous x [n, inputs], as one autograd node.
// It has gradients for x, the trained rows `first` of a and `second` of b, and the bias, which may
// be undefined. Keeps x and, without `recompute`, the columns of x aᵀ that multiply `second`.
// Results have the type of FactorProducts. Second derivatives throw Error{Unsupported}.
torch::Tensor factored_product(const torch::Tensor& x, const torch::Tensor& first,
                               const torch::Tensor& second, const torch::Tensor& bias,
                               const FactoredCall& call);

}  // namespace hone::nn::detail
