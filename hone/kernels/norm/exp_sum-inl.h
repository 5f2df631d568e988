// SPDX-License-Identifier: Apache-2.0
// The loops that log_sum_exp, token scores and cross-entropy share; compiled once per Highway
// target.
#if defined(HONE_KERNELS_NORM_EXP_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_NORM_EXP_SUM_INL_H_
#undef HONE_KERNELS_NORM_EXP_SUM_INL_H_
#else
#define HONE_KERNELS_NORM_EXP_SUM_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/index.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the largest lane of v; unspecified if a lane is NaN. Highway's EMU128 returns the lowest
// finite number if all lanes are -infinity.
template <class D>
HWY_INLINE float largest_lane(D d, hn::Vec<D> v) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  if (hn::AllTrue(d, hn::Eq(v, hn::Set(d, kLowest)))) return kLowest;
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// Returns the largest element and whether one is NaN (in which case the value is unspecified).
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
  float result = largest_lane(d, highest);
  has_nan = !hn::AllFalse(d, nan);
  for (; i < cols; ++i) {
    result = std::max(result, x[i]);
    has_nan = has_nan || std::isnan(x[i]);
  }
  return result;
}

// Writes exp(x[i] - shift) to y, which may be x, unless y is null. Returns the sum in f32.
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

// Like exp_and_sum(), but sums in f32 over 512 elements and in double beyond. So a lane's sum is
// rounded at most 512 / lanes times.
HWY_INLINE double exp_and_sum_in_parts(const float* x, float shift, Index cols, float* y) {
  constexpr Index kPart = 512;
  double sum = 0;
  for (Index i = 0; i < cols; i += kPart) {
    sum += exp_and_sum(x + i, shift, std::min(kPart, cols - i), y == nullptr ? nullptr : y + i);
  }
  return sum;
}

using WideTag = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<WideTag> load_wide(const float* x) {
  return hn::PromoteTo(WideTag(), hn::LoadU(hn::Rebind<float, WideTag>(), x));
}

// Returns sum_i exp(x[i] - top), computed in double.
HWY_INLINE double sum_of_exp(const float* x, double top, Index cols) {
  const WideTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto tops = hn::Set(d, top);
  auto sums = hn::Zero(d);
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) {
    sums = hn::Add(sums, hn::Exp(d, hn::Sub(load_wide(x + i), tops)));
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < cols; ++i) sum += std::exp(x[i] - top);
  return sum;
}

HWY_INLINE void scale_in_place(float* y, Index cols, float scale) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  Index i = 0;
  for (; i + lanes <= cols; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scales), d, y + i);
  for (; i < cols; ++i) y[i] *= scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
