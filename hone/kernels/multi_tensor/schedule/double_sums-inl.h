// SPDX-License-Identifier: Apache-2.0
// Sums of floats in double, compiled once per Highway target.
#if defined(HONE_DOUBLE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_DOUBLE_SUMS_INL_H_
#undef HONE_DOUBLE_SUMS_INL_H_
#else
#define HONE_DOUBLE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many floats as fit a vector of doubles
using DoubleVec = hn::Vec<Doubles>;

HWY_INLINE DoubleVec load_as_double(const float* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(HalfFloats(), from));
}

HWY_INLINE double sum_lanes(DoubleVec a, DoubleVec b) {
  return hn::GetLane(hn::SumOfLanes(Doubles(), hn::Add(a, b)));
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
