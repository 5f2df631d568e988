// SPDX-License-Identifier: Apache-2.0
// The formula of adam.h for one vector or number of each slot; see rule_ops-inl.h.
#if defined(HONE_ADAM_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_ADAM_RULE_INL_H_
#undef HONE_ADAM_RULE_INL_H_
#else
#define HONE_ADAM_RULE_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"
#include "hone/kernels/multi_tensor/rule/second_moment-inl.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

// The mean moves by its share of the difference: m += (1 - β)(g - m). In this form the rounding of
// β to fp32 shifts neither the fixed point nor the bias correction, as β m + (1 - β) g does.
template <bool kAmsgrad>
struct AdamRule {
  static constexpr bool kMomentum = true, kSecondMoment = true, kExtra = kAmsgrad;
  AdamScalars s;

  template <class V>
  HONE_RULE void apply(V& p, V g, V& m, V& v, V& largest) const {
    g = mul_add(set<V>(s.l2), p, g);
    m = mul_add(set<V>(s.mean_share), sub(g, m), m);
    v = next_second_moment(v, g, s.square_share);
    V seen = v;
    if constexpr (kAmsgrad) seen = largest = max(v, largest);
    const V denominator = mul_add(sqrt(seen), set<V>(s.inverse_root_correction), set<V>(s.eps));
    p = mul_sub(p, set<V>(s.keep), div(mul(m, set<V>(s.step_size)), denominator));
  }
};

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
