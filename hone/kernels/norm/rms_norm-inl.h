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

HWY_INLINE float sum_of_squares(const float* x, Index cols) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto sum0 = hn::Zero(d);
  auto sum1 = sum0, sum2 = sum0, sum3 = sum0;
  Index i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + lanes);
    const auto x2 = hn::LoadU(d, x + i + 2 * lanes), x3 = hn::LoadU(d, x + i + 3 * lanes);
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  for (; i + lanes <= cols; i += lanes) {
    const auto x0 = hn::LoadU(d, x + i);
    sum0 = hn::MulAdd(x0, x0, sum0);
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < cols; ++i) total += x[i] * x[i];
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

void rms_norm_rows(const RmsNormArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    const float mean = sum_of_squares(x, args.cols) / static_cast<float>(args.cols);
    const float scale = 1.0f / std::sqrt(mean + args.epsilon);
    scale_row(x, args.weight, scale, args.cols, args.y + row * args.y_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
