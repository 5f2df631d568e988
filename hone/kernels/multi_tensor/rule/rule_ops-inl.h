// SPDX-License-Identifier: Apache-2.0
// The words that update rules (*_rule-inl.h) are written in, for vectors of floats; compiled once
// per Highway target. CUDA has the same words for single floats.
#if defined(HONE_RULE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_RULE_OPS_INL_H_
#undef HONE_RULE_OPS_INL_H_
#else
#define HONE_RULE_OPS_INL_H_
#endif

#include <hwy/highway.h>

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

using Floats = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Floats>;

template <class V>
HWY_INLINE V set(float value) {
  return hn::Set(Floats(), value);
}
HWY_INLINE FloatVec add(FloatVec a, FloatVec b) { return hn::Add(a, b); }
HWY_INLINE FloatVec sub(FloatVec a, FloatVec b) { return hn::Sub(a, b); }
HWY_INLINE FloatVec mul(FloatVec a, FloatVec b) { return hn::Mul(a, b); }
HWY_INLINE FloatVec div(FloatVec a, FloatVec b) { return hn::Div(a, b); }
HWY_INLINE FloatVec max(FloatVec a, FloatVec b) { return hn::Max(a, b); }
HWY_INLINE FloatVec sqrt(FloatVec a) { return hn::Sqrt(a); }
// a b + c, a b - c and c - a b, rounded once where the processor can.
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
