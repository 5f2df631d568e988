// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/codec/loss_scale.h"

namespace hone::amp {

// Statistics of the effect of fp16 on gradients at a loss scale. Add several steps with +=.
using GradientStatistics = kernels::F16Statistics;

// Measures exponents, and the loss of fp16(scale · g), in one sweep. A gradient g is factor ·
// tensor; pass 1 / scale as the factor while tensors carry the loss scale. Skips undefined tensors.
// Counts and sums do not depend on the number of threads. Reads fp32 tensors on the CPU in place,
// and copies others first. Throws Error{InvalidArgument} unless factor and scale are positive fp32
// numbers, and Error{Unsupported} for sparse gradients.
GradientStatistics measure_gradients(std::span<const torch::Tensor> gradients, double scale,
                                     double factor = 1);
GradientStatistics measure_gradients(torch::optim::Optimizer& optimizer, double scale,
                                     double factor = 1);

// Returns the share of nonzero gradients that fp16 turns into 0 at the scale 2^exponent.
double underflow_fraction(const GradientStatistics& statistics, int exponent);

struct ScalePoint {
  double scale = 1;               // a power of two
  double underflow_fraction = 0;  // share of the nonzero gradients
  bool fits = true;               // scale · max|g| ≤ 65,504
};
struct ScaleAdvice {
  double scale = 1;
  std::vector<ScalePoint> curve;  // 2^0 … 2^24, extended to the advised scale if necessary
};

// Returns the largest power of two in [2^-126, 2^126] with scale · max|g| · 2^headroom_bits ≤
// 65,504: larger scales lose less to underflow. Returns the current scale if nothing but zeros was
// measured. Throws Error{InvalidArgument} if an inf or NaN was measured or headroom_bits is not in
// [0, 30].
ScaleAdvice recommend_scale(const GradientStatistics& statistics, double current_scale,
                            int headroom_bits = 1);

}  // namespace hone::amp
