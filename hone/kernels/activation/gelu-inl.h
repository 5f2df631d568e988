// SPDX-License-Identifier: Apache-2.0
// GELU in its tanh form, and soft caps; compiled once per Highway target.
#if defined(HONE_KERNELS_ACTIVATION_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ACTIVATION_GELU_INL_H_
#undef HONE_KERNELS_ACTIVATION_GELU_INL_H_
#else
#define HONE_KERNELS_ACTIVATION_GELU_INL_H_
#endif

#include "hone/kernels/activation/silu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

constexpr float kGeluTwiceRoot = 1.5957691216057308f;  // 2 sqrt(2/pi)
constexpr float kGeluCubic = 0.044715f;

// t(v) = 2 sqrt(2/pi) (v + 0.044715 v³).
template <class D, class V>
HWY_INLINE V gelu_inner(D d, V v) {
  const auto cube = hn::Mul(hn::Mul(v, v), v);
  const auto inner = hn::MulAdd(cube, hn::Set(d, kGeluCubic), v);
  return hn::Mul(inner, hn::Set(d, kGeluTwiceRoot));
}

// v t'(v), or 0 beyond ±100, where the sigmoid of t(v) is 0 or 1 and the cube may overflow.
template <class D, class V>
HWY_INLINE V gelu_inner_steep(D d, V v) {
  const auto cube = hn::Mul(hn::Mul(v, v), v);
  const auto inner = hn::MulAdd(cube, hn::Set(d, 3 * kGeluCubic), v);
  const auto steep = hn::Mul(inner, hn::Set(d, kGeluTwiceRoot));
  return hn::IfThenZeroElse(hn::Gt(hn::Abs(v), hn::Set(d, 100.0f)), steep);
}

// v/2 (1 + tanh(u)) = v / (1 + exp(-2u)), u = sqrt(2/pi) (v + 0.044715 v³) (Hendrycks and Gimpel,
// arXiv 1606.08415).
template <class D, class V>
HWY_INLINE V gelu_tanh(D d, V v) {
  return times_sigmoid(d, v, gelu_inner(d, v));
}

// cap tanh(v / cap); NaN stays NaN.
template <class D, class V>
HWY_INLINE V soft_cap(D d, V v, V cap, V inverse_cap) {
  const auto capped = hn::Mul(cap, hn::Tanh(d, hn::Mul(v, inverse_cap)));
  return hn::IfThenElse(hn::IsNaN(v), v, capped);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
