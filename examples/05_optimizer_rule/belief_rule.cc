// SPDX-License-Identifier: Apache-2.0
#include "belief_rule.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "belief_rule.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hone/kernels/multi_tensor/rule/rule_kernel-inl.h>

#include "belief_stage-inl.h"

HONE_RULE_KERNEL(belief, example::BeliefScalars, BeliefRule);

#if HWY_ONCE
namespace example {

void check_group(std::string_view op, const BeliefGroup& group) {
  using namespace hone::kernels;
  check_at_least_zero(op, "lr", group.lr);
  check_decay(op, "beta1", group.beta1);
  check_decay(op, "beta2", group.beta2);
  check_at_least_zero(op, "eps", group.eps);
  check_at_least_zero(op, "weight_decay", group.weight_decay);
}

hone::kernels::StepReport belief_step(const hone::kernels::MultiTensorPlan& plan,
                                      std::span<const BeliefGroup> groups,
                                      const hone::kernels::StepControl& control,
                                      hone::Executor& executor) {
  const auto kernel_of = [](const BeliefGroup&) { return hone::kernels::choose_belief(); };
  return hone::kernels::elementwise_step("belief_step", plan, groups, kernel_of, control, executor);
}

}  // namespace example
#endif
