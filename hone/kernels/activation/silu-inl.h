// SPDX-License-Identifier: Apache-2.0
// The sigmoid of every gate; compiled once per Highway target.
#if defined(HONE_KERNELS_ACTIVATION_SILU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ACTIVATION_SILU_INL_H_
#undef HONE_KERNELS_ACTIVATION_SILU_INL_H_
#else
#define HONE_KERNELS_ACTIVATION_SILU_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a / (1 + exp(-v)). Below -88, exp leaves the range of its polynomial. The result is 0 there,
// which differs from the exact value by less than 1e-38 |a|.
template <class D, class V>
HWY_INLINE V times_sigmoid(D d, V a, V v) {
  const auto gated = hn::Div(a, hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(v))));
  return hn::IfThenZeroElse(hn::Lt(v, hn::Set(d, -88.0f)), gated);
}

template <class D, class V>
HWY_INLINE V silu(D d, V v) {
  return times_sigmoid(d, v, v);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
