// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see softmax.cc.
#if defined(HONE_KERNELS_NORM_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_SOFTMAX_INL_H_
#undef HONE_KERNELS_NORM_SOFTMAX_INL_H_
#else
#define HONE_KERNELS_NORM_SOFTMAX_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/norm/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest element, and whether one is NaN (in which case the value is unspecified).
HWY_INLINE float max_of_row(const float* x, Index cols, bool& has_nan) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto highest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto nan = hn::FirstN(d, 0);
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    highest = hn::Max(highest, v);
    nan = hn::Or(nan, hn::IsNaN(v));
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, highest));
  has_nan = !hn::AllFalse(d, nan);
  for (; i < cols; ++i) {
    result = std::max(result, x[i]);
    has_nan = has_nan || std::isnan(x[i]);
  }
  return result;
}

// exp(x[i] - shift) into y where y is not null; returns their sum.
HWY_INLINE float exp_and_sum(const float* x, float shift, Index cols, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto shifts = hn::Set(d, shift);
  auto sum = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), shifts));
    sum = hn::Add(sum, e);
    if (y != nullptr) hn::StoreU(e, d, y + i);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < cols; ++i) {
    const float e = std::exp(x[i] - shift);
    total += e;
    if (y != nullptr) y[i] = e;
  }
  return total;
}

void softmax_rows(const SoftmaxArgs& args) {
  for (Index row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.stride;
    float* y = args.y + row * args.stride;
    bool has_nan = false;
    const float highest = max_of_row(x, args.cols, has_nan);
    if (has_nan) {  // hn::Exp would turn it into 0
      std::fill(y, y + args.cols, std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    if (std::isinf(highest) && highest < 0) {
      std::fill(y, y + args.cols, 0.0f);
      continue;
    }
    const float scale = 1.0f / exp_and_sum(x, highest, args.cols, y);
    for (Index i = 0; i < args.cols; ++i) y[i] *= scale;
  }
}

double log_sum_exp_row(const float* x, Index cols) {
  constexpr Index kPart = 512;  // at most 512 / lanes roundings of a lane's f32 sum
  bool has_nan = false;
  const float highest = max_of_row(x, cols, has_nan);
  if (has_nan) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(highest)) return highest;
  double sum = 0;
  for (Index i = 0; i < cols; i += kPart) {
    sum += exp_and_sum(x + i, highest, std::min(kPart, cols - i), nullptr);
  }
  return highest + std::log(sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
