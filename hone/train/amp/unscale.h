// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include "hone/core/index.h"

namespace hone::amp {

struct UnscaleResult {
  bool found_inf = false;
  Index first_nonfinite = -1;  // parameter, counted through all groups
  double norm = -1;            // 2-norm of the gradients after unscaling; -1: not requested
};

// Computes g ← inv_scale · g for every gradient of the optimizer, and checks that all are finite,
// in one sweep. fp32 gradients on the CPU use hone's kernel in one parallel loop, which computes
// the norm at no extra cost. Others (fp64, bf16, other devices) use ATen, whose result is read once
// per device. Throws an error that names `op`, and changes no gradient: InvalidArgument if no
// parameter has a gradient, Unsupported for fp16 or sparse gradients.
UnscaleResult unscale_gradients(std::string_view op, torch::optim::Optimizer& optimizer,
                                double inv_scale, bool want_norm);

// Does the checks of unscale_gradients for an optimizer that unscales in its own step. Reads no
// gradient values, and accepts fp16 gradients.
void check_gradients(std::string_view op, torch::optim::Optimizer& optimizer);

// Returns the p-norm of all gradients (see StepControl::norm_type). Takes a sweep of its own.
double measure_norm(std::string_view op, torch::optim::Optimizer& optimizer, double norm_type);
// Clamps every gradient to ±limit; NaN stays NaN.
void limit_gradients(std::string_view op, torch::optim::Optimizer& optimizer, double limit);

}  // namespace hone::amp
