// SPDX-License-Identifier: Apache-2.0
// The formula of sgd.h for one vector or number of each slot; see rule_ops-inl.h.
#if defined(HONE_SGD_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_SGD_RULE_INL_H_
#undef HONE_SGD_RULE_INL_H_
#else
#define HONE_SGD_RULE_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

template <bool kHasMomentum>
struct SGDRule {
  static constexpr bool kMomentum = kHasMomentum, kSecondMoment = false, kExtra = false;
  SGDScalars s;

  template <class V>
  HONE_RULE void apply(V& p, V g, V& m, V&, V&) const {
    g = mul_add(set<V>(s.l2), p, g);
    V update = g;
    if constexpr (kHasMomentum) {
      m = mul_add(g, set<V>(s.grad_share), mul(m, set<V>(s.momentum_keep)));
      update = mul_add(m, set<V>(s.look_ahead), mul(g, set<V>(s.grad_in_update)));
    }
    p = nmul_add(update, set<V>(s.lr), p);
  }
};

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
