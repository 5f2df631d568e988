// SPDX-License-Identifier: Apache-2.0
// The operations in which update rules are written, for vectors of floats (compiled once per
// Highway target) and for the doubles of plain loops. scalar_ops.h has them for CUDA's single
// floats.
#if defined(HONE_RULE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_RULE_OPS_INL_H_
#undef HONE_RULE_OPS_INL_H_
#else
#define HONE_RULE_OPS_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/multi_tensor/rule/scalar_ops.h"

#undef HONE_RULE
#undef HONE_RULE_NAMESPACE
#undef HONE_RULE_BEFORE_NAMESPACE
#undef HONE_RULE_AFTER_NAMESPACE
#define HONE_RULE HWY_INLINE
#define HONE_RULE_NAMESPACE HWY_NAMESPACE
#define HONE_RULE_BEFORE_NAMESPACE HWY_BEFORE_NAMESPACE
#define HONE_RULE_AFTER_NAMESPACE HWY_AFTER_NAMESPACE

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using scalar_rule::add, scalar_rule::sub, scalar_rule::mul, scalar_rule::div, scalar_rule::min;
using scalar_rule::max, scalar_rule::sqrt, scalar_rule::mul_add, scalar_rule::mul_sub;
using scalar_rule::nmul_add, scalar_rule::sign;

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

template <class V>
HWY_INLINE V set(float value) {
  if constexpr (hwy::IsSame<V, double>()) {
    return value;
  } else {
    return hn::Set(Floats(), value);
  }
}
HWY_INLINE FloatVec add(FloatVec a, FloatVec b) { return hn::Add(a, b); }
HWY_INLINE FloatVec sub(FloatVec a, FloatVec b) { return hn::Sub(a, b); }
HWY_INLINE FloatVec mul(FloatVec a, FloatVec b) { return hn::Mul(a, b); }
HWY_INLINE FloatVec div(FloatVec a, FloatVec b) { return hn::Div(a, b); }
HWY_INLINE FloatVec min(FloatVec a, FloatVec b) { return hn::Min(a, b); }
HWY_INLINE FloatVec max(FloatVec a, FloatVec b) { return hn::Max(a, b); }
HWY_INLINE FloatVec sqrt(FloatVec a) { return hn::Sqrt(a); }
// a b + c, a b - c and c - a b, rounded once if the processor can.
HWY_INLINE FloatVec mul_add(FloatVec a, FloatVec b, FloatVec c) { return hn::MulAdd(a, b, c); }
HWY_INLINE FloatVec mul_sub(FloatVec a, FloatVec b, FloatVec c) { return hn::MulSub(a, b, c); }
HWY_INLINE FloatVec nmul_add(FloatVec a, FloatVec b, FloatVec c) { return hn::NegMulAdd(a, b, c); }
// -1, 0 or 1; NaN stays NaN.
HWY_INLINE FloatVec sign(FloatVec a) {
  const Floats d;
  const FloatVec one = hn::CopySign(hn::Set(d, 1.0f), a);
  return hn::IfThenElse(hn::Lt(hn::Zero(d), hn::Abs(a)), one, a);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
