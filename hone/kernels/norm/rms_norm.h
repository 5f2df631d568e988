// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// y[r, i] = x[r, i] * weight[i] / sqrt(mean_j x[r, j]^2 + epsilon); x [rows, cols], rows `stride`
// elements apart. y may be x. A row's result depends on that row alone: its sum runs over fixed
// lanes, whatever `rows` is.
struct RmsNormArgs {
  const float* x = nullptr;
  Index x_stride = 0;
  const float* weight = nullptr;  // [cols]
  float* y = nullptr;
  Index y_stride = 0;
  Index rows = 0, cols = 0;
  float epsilon = 1e-5f;
};

// Error{InvalidArgument} on a negative size, a stride below cols or an epsilon that is not
// positive.
void rms_norm(const RmsNormArgs& args);

// Plain loops, double accumulation.
void rms_norm_ref(const RmsNormArgs& args);

}  // namespace hone::kernels
