// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see rms_norm.cc.
#if defined(HONE_KERNELS_NORM_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_RMS_NORM_INL_H_
#undef HONE_KERNELS_NORM_RMS_NORM_INL_H_
#else
#define HONE_KERNELS_NORM_RMS_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "hone/kernels/norm/rms_norm.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the sum of squares of x or, with a delta, of sum = x + delta.
HWY_INLINE float sum_of_squares(const float* x, const float* delta, Index cols, float* sum) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto load = [&](Index i) HWY_ATTR {
    auto v = hn::LoadU(d, x + i);
    if (delta == nullptr) return v;
    v = hn::Add(v, hn::LoadU(d, delta + i));
    hn::StoreU(v, d, sum + i);
    return v;
  };
  auto sum0 = hn::Zero(d);
  auto sum1 = sum0, sum2 = sum0, sum3 = sum0;
  Index i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    const auto v0 = load(i), v1 = load(i + lanes);
    const auto v2 = load(i + 2 * lanes), v3 = load(i + 3 * lanes);
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
    sum2 = hn::MulAdd(v2, v2, sum2);
    sum3 = hn::MulAdd(v3, v3, sum3);
  }
  for (; i + lanes <= cols; i += lanes) {
    const auto v = load(i);
    sum0 = hn::MulAdd(v, v, sum0);
  }
  const auto squares = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  float total = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < cols; ++i) {
    const float v = delta == nullptr ? x[i] : (sum[i] = x[i] + delta[i]);
    total += v * v;
  }
  return total;
}

HWY_INLINE void scale_row(const float* x, const float* weight, float scale, Index cols, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < cols; ++i) y[i] = x[i] * scale * weight[i];
}

void rms_norm_rows(const RmsNormArgs& args, Index begin, Index end) {
  for (Index row = begin; row < end; ++row) {
    const Index at = row * args.x_stride;
    const float* delta = args.delta == nullptr ? nullptr : args.delta + at;
    float* sum = args.delta == nullptr ? nullptr : args.sum + at;
    const float squares = sum_of_squares(args.x + at, delta, args.cols, sum);
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(args.cols) + args.epsilon);
    if (args.inverse_rms != nullptr) args.inverse_rms[row] = scale;
    const float* from = args.delta == nullptr ? args.x + at : sum;
    scale_row(from, args.weight, scale, args.cols, args.y + row * args.y_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
