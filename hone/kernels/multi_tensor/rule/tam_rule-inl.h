// SPDX-License-Identifier: Apache-2.0
// The formula of tam.h for one vector or number of each slot; see rule_ops-inl.h.
#if defined(HONE_TAM_RULE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_TAM_RULE_INL_H_
#undef HONE_TAM_RULE_INL_H_
#else
#define HONE_TAM_RULE_INL_H_
#endif

#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"
#include "hone/kernels/multi_tensor/rule/second_moment-inl.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

template <bool kAdaptive>
struct TAMRule {
  static constexpr bool kMomentum = true, kSecondMoment = kAdaptive, kExtra = false;
  TAMScalars s;

  template <class V>
  HONE_RULE void apply(V& p, V g, V& m, V& v, V&) const {
    g = mul_add(set<V>(s.l2), p, g);
    m = mul_add(g, set<V>(s.damping), mul(m, set<V>(s.momentum_keep)));
    V update = mul(m, set<V>(s.lr));
    if constexpr (kAdaptive) {
      v = next_second_moment(v, g, s.square_share);
      update = div(update, add(sqrt(v), set<V>(s.eps)));
    }
    p = mul_sub(p, set<V>(s.keep), update);
  }
};

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
