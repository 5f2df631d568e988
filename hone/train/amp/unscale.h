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

// g ← inv_scale · g for every gradient of the optimizer and the finite check, in one sweep over
// them. fp32 gradients on the CPU go through hone's kernel in one parallel loop, which computes the
// norm at no extra cost; the others (fp64, bf16, other devices) go through ATen's, whose result is
// read once per device. Throws an error that names `op`, and changes no gradient: InvalidArgument
// if no parameter has a gradient, Unsupported for fp16 or sparse gradients.
UnscaleResult unscale_gradients(std::string_view op, torch::optim::Optimizer& optimizer,
                                double inv_scale, bool want_norm);

// The checks of unscale_gradients, for an optimizer that unscales in its step: a look at each
// parameter, none at its gradient's values. fp16 gradients are fine there.
void check_gradients(std::string_view op, torch::optim::Optimizer& optimizer);

// p-norm of all gradients, as StepControl::norm_type, in a sweep of its own.
double measure_norm(std::string_view op, torch::optim::Optimizer& optimizer, double norm_type);
// Every gradient within ±limit; NaN stays NaN.
void limit_gradients(std::string_view op, torch::optim::Optimizer& optimizer, double limit);

}  // namespace hone::amp
