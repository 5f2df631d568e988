// SPDX-License-Identifier: Apache-2.0
// The formula of belief_rule.h, compiled once per instruction set. A .cu file that includes
// <hone/kernels/multi_tensor/cuda/stepper.cuh> before this one has the same lines for single
// floats; it specializes make_rule_on_cuda for BeliefGroup, which then has kOnCuda.
#if defined(EXAMPLE_BELIEF_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EXAMPLE_BELIEF_STAGE_INL_H_
#undef EXAMPLE_BELIEF_STAGE_INL_H_
#else
#define EXAMPLE_BELIEF_STAGE_INL_H_
#endif

#include <hone/kernels/multi_tensor/rule/stages-inl.h>

HONE_RULE_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HONE_RULE_NAMESPACE {

// v <- v + share ((g - m)^2 - v) + eps; w = v
struct SquareOfSurprise : Stage {
  static constexpr bool kMomentum = true, kSecondMoment = true;
  HONE_STAGE(S, V) {
    const V surprise = sub(g, m);
    const V difference = sub(mul(surprise, surprise), v);
    w = v = add(mul_add(set<V>(s.square_share), difference, v), set<V>(s.eps));
  }
};

using BeliefRule = Fused<MovingMean, SquareOfSurprise, TimesRate, OverRoot, Descend>;

}  // namespace HONE_RULE_NAMESPACE
}  // namespace hone::kernels
HONE_RULE_AFTER_NAMESPACE();

#endif
