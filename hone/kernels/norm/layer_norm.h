// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// y[r, i] = (x[r, i] - mean) / sqrt(variance + epsilon) * weight[i] + bias[i], with the mean and
// the variance mean_j (x[r, j] - mean)² of the row (Ba, Kiros and Hinton, arXiv 1607.06450). x is
// [rows, cols], with rows `stride` elements apart. y may be x. A row's result depends only on that
// row: its sums run over fixed lanes, whatever `rows` is.
struct LayerNormArgs {
  const float* x = nullptr;
  Index x_stride = 0;
  const float* weight = nullptr;  // [cols]
  const float* bias = nullptr;    // [cols], or null for none
  float* y = nullptr;
  Index y_stride = 0;
  Index rows = 0, cols = 0;
  float epsilon = 1e-5f;
};

// Throws Error{InvalidArgument} for a negative size, a stride below cols or an epsilon that is not
// positive.
void layer_norm(const LayerNormArgs& args, Executor& executor = serial_executor());

// Reference: plain loops with double accumulation.
void layer_norm_ref(const LayerNormArgs& args);

}  // namespace hone::kernels
