// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see soft_cap.cc.
#if defined(HONE_KERNELS_ACTIVATION_SOFT_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ACTIVATION_SOFT_CAP_INL_H_
#undef HONE_KERNELS_ACTIVATION_SOFT_CAP_INL_H_
#else
#define HONE_KERNELS_ACTIVATION_SOFT_CAP_INL_H_
#endif

#include "hone/kernels/activation/gelu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Caps elements [begin, …) in steps of the tag's lanes and returns where it stopped. A one-lane tag
// finishes the rest with the same operations.
template <class D>
HWY_INLINE Index cap_part(D d, float* x, Index begin, Index end, float cap) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto caps = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  Index i = begin;
  for (; i + lanes <= end; i += lanes)
    hn::StoreU(soft_cap(d, hn::LoadU(d, x + i), caps, inverse), d, x + i);
  return i;
}

void soft_cap_range(float* x, Index begin, Index end, float cap) {
  const Index done = cap_part(hn::ScalableTag<float>(), x, begin, end, cap);
  cap_part(hn::CappedTag<float, 1>(), x, done, end, cap);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
