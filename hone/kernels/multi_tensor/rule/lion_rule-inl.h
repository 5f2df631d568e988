// SPDX-License-Identifier: Apache-2.0
// The formula of lion.h for one vector or number of each slot; see rule_ops-inl.h.
#if defined(HONE_LION_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_LION_RULE_INL_H_
#undef HONE_LION_RULE_INL_H_
#else
#define HONE_LION_RULE_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

struct LionRule {
  static constexpr bool kMomentum = true, kSecondMoment = false, kExtra = false;
  LionScalars s;

  template <class V>
  HONE_RULE void apply(V& p, V g, V& m, V&, V&) const {
    const V difference = sub(g, m);
    const V direction = sign(mul_add(set<V>(s.update_share), difference, m));
    m = mul_add(set<V>(s.mean_share), difference, m);
    p = mul_sub(p, set<V>(s.keep), mul(direction, set<V>(s.lr)));
  }
};

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
