// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>

#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/codec/loss_scale.h"

namespace hone::amp {

// What fp16 does to gradients at a loss scale; add those of several steps with +=.
using GradientStatistics = kernels::F16Statistics;

// One sweep over the gradients, which are factor · tensor (1 / scale while they still carry the
// loss scale): exponents, and what fp16(scale · g) loses. Undefined tensors are skipped. Counts and
// sums are the same for any number of threads. fp32 tensors on the CPU are read in place; other
// types and devices are copied first. Error{InvalidArgument} unless factor and scale are positive
// fp32 numbers, Unsupported for sparse gradients.
GradientStatistics measure_gradients(std::span<const torch::Tensor> gradients, double scale,
                                     double factor = 1);
GradientStatistics measure_gradients(torch::optim::Optimizer& optimizer, double scale,
                                     double factor = 1);

// Share of the gradients other than 0 that fp16 turns into 0 at the scale 2^exponent.
double underflow_fraction(const GradientStatistics& statistics, int exponent);

struct ScalePoint {
  double scale = 1;               // a power of two
  double underflow_fraction = 0;  // of the gradients other than 0
  bool fits = true;               // scale · max|g| ≤ 65,504
};
struct ScaleAdvice {
  double scale = 1;
  std::vector<ScalePoint> curve;  // 2^0 … 2^24, and up to the advised scale where that lies outside
};

// The largest power of two with scale · max|g| · 2^headroom_bits ≤ 65,504 within [2^-126, 2^126],
// which loses least to underflow; the current scale if only zeros, or nothing, were measured.
// Throws Error{InvalidArgument} if an inf or NaN was measured or headroom_bits is not in [0, 30].
ScaleAdvice recommend_scale(const GradientStatistics& statistics, double current_scale,
                            int headroom_bits = 1);

}  // namespace hone::amp
