// SPDX-License-Identifier: Apache-2.0
// The average of squares that adaptive rules share; see rule_ops-inl.h.
#if defined(HONE_SECOND_MOMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_SECOND_MOMENT_INL_H_
#undef HONE_SECOND_MOMENT_INL_H_
#else
#define HONE_SECOND_MOMENT_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

// (v - share v) + share g². The rounding of share to fp32 shifts no fixed point, and g² itself,
// which overflows from |g| = 1.8e19 on, is never formed. An infinite v stays so, and its parameter
// where it is: of inf - share inf = NaN and the second number `max` gives the second.
template <class V>
HONE_RULE V next_second_moment(V v, V g, float share) {
  const V decayed = max(nmul_add(set<V>(share), v, v), mul(v, set<V>((1 - share) * 0.999999f)));
  return mul_add(mul(set<V>(share), g), g, decayed);
}

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
