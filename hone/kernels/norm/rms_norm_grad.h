// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// The gradients of rms_norm with respect to x (or delta) and weight; every matrix is [rows, cols]
// without gaps. With r = inverse_rms, g = grad_y:
//   grad_x = grad_sum + r (g w) - x r^3 <g w, x> / cols,   grad_weight = sum over rows of g x r.
// Results do not depend on the number of workers.
struct RmsNormGradArgs {
  Index rows = 0, cols = 0;
  const float* x = nullptr;            // with a delta, sum
  const float* weight = nullptr;       // [cols]
  const float* inverse_rms = nullptr;  // [rows]
  const float* grad_y = nullptr;
  const float* grad_sum = nullptr;  // gradient of sum from its other uses; null: zero
  float* grad_x = nullptr;          // may be grad_sum
  float* grad_weight = nullptr;     // [cols], overwritten
};

// Throws Error{InvalidArgument} if rows is negative or cols is not positive.
void rms_norm_grad(const RmsNormGradArgs& args, Executor& executor = serial_executor());

// Reference: plain loops in double.
void rms_norm_grad_ref(const RmsNormGradArgs& args);

}  // namespace hone::kernels
