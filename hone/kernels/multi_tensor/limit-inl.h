// SPDX-License-Identifier: Apache-2.0
// Clipping by value, compiled once per Highway target.
#if defined(HONE_LIMIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_LIMIT_INL_H_
#undef HONE_LIMIT_INL_H_
#else
#define HONE_LIMIT_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Limits values to ±limit; NaN stays NaN. (Minimum and maximum treat NaN as the processor does.)
template <class D>
HWY_INLINE hn::Vec<D> limit_magnitude(D d, hn::Vec<D> values, float limit) {
  const auto most = hn::Set(d, limit);
  return hn::IfThenElse(hn::Gt(hn::Abs(values), most), hn::CopySign(most, values), values);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
