// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see layer_norm.cc.
#if defined(HONE_KERNELS_NORM_LAYER_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_LAYER_NORM_INL_H_
#undef HONE_KERNELS_NORM_LAYER_NORM_INL_H_
#else
#define HONE_KERNELS_NORM_LAYER_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "hone/kernels/norm/layer_norm.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float sum_of(const float* x, Index cols) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  Index i = 0;
  for (; i + 2 * lanes <= cols; i += 2 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + lanes));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < cols; ++i) total += x[i];
  return total;
}

// Sums the squares of x - mean, in a second pass, which avoids cancellation.
HWY_INLINE float sum_of_deviations(const float* x, float mean, Index cols) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto means = hn::Set(d, mean);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  Index i = 0;
  for (; i + 2 * lanes <= cols; i += 2 * lanes) {
    const auto a = hn::Sub(hn::LoadU(d, x + i), means);
    const auto b = hn::Sub(hn::LoadU(d, x + i + lanes), means);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < cols; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

HWY_INLINE void shift_and_scale(const LayerNormArgs& args, const float* x, float mean, float scale,
                                float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto means = hn::Set(d, mean), scales = hn::Set(d, scale);
  Index i = 0;
  for (; i + lanes <= args.cols; i += lanes) {
    const auto normed = hn::Mul(hn::Sub(hn::LoadU(d, x + i), means), scales);
    const auto bias = args.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, args.bias + i);
    hn::StoreU(hn::MulAdd(normed, hn::LoadU(d, args.weight + i), bias), d, y + i);
  }
  for (; i < args.cols; ++i) {
    const float bias = args.bias == nullptr ? 0.0f : args.bias[i];
    y[i] = (x[i] - mean) * scale * args.weight[i] + bias;
  }
}

void layer_norm_rows(const LayerNormArgs& args, Index begin, Index end) {
  const auto cols = static_cast<float>(args.cols);
  for (Index row = begin; row < end; ++row) {
    const float* x = args.x + row * args.x_stride;
    const float mean = sum_of(x, args.cols) / cols;
    const float variance = sum_of_deviations(x, mean, args.cols) / cols;
    const float scale = 1.0f / std::sqrt(variance + args.epsilon);
    shift_and_scale(args, x, mean, scale, args.y + row * args.y_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
