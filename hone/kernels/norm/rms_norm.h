// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// y[r, i] = x[r, i] * weight[i] / sqrt(mean_j x[r, j]^2 + epsilon). x is [rows, cols], with rows
// `stride` elements apart. With a delta (the output of a residual branch), sum = x + delta replaces
// x. y may be x; sum may be x or delta. A row's result depends only on that row: its sum runs over
// fixed lanes, whatever `rows` is.
struct RmsNormArgs {
  const float* x = nullptr;
  Index x_stride = 0;             // also for delta and sum
  const float* delta = nullptr;   // null: zero, and `sum` is not written
  float* sum = nullptr;           // x + delta
  const float* weight = nullptr;  // [cols]
  float* y = nullptr;
  Index y_stride = 0;
  float* inverse_rms = nullptr;  // [rows], 1 / sqrt(mean + epsilon), for the gradient; or null
  Index rows = 0, cols = 0;
  float epsilon = 1e-5f;
};

// Throws Error{InvalidArgument} for a negative size, a stride below cols, an epsilon that is not
// positive, or an inverse_rms with zero columns.
void rms_norm(const RmsNormArgs& args, Executor& executor = serial_executor());

// Reference: plain loops with double accumulation.
void rms_norm_ref(const RmsNormArgs& args);

}  // namespace hone::kernels
