// SPDX-License-Identifier: Apache-2.0
// The formula of adagrad.h for one vector or number of each slot; see rule_ops-inl.h.
#if defined(HONE_ADAGRAD_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_ADAGRAD_RULE_INL_H_
#undef HONE_ADAGRAD_RULE_INL_H_
#else
#define HONE_ADAGRAD_RULE_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

struct AdagradRule {
  static constexpr bool kMomentum = false, kSecondMoment = true, kExtra = false;
  AdagradScalars s;

  template <class V>
  HONE_RULE void apply(V& p, V g, V&, V& sum, V&) const {
    g = mul_add(set<V>(s.l2), p, g);
    sum = mul_add(g, g, sum);
    p = sub(p, div(mul(g, set<V>(s.lr)), add(sqrt(sum), set<V>(s.eps))));
  }
};

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
