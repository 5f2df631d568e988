// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/rmsprop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/rmsprop.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(rmsprop, RMSpropScalars, RMSpropRule);
HONE_RULE_KERNEL(rmsprop_momentum, RMSpropScalars, RMSpropMomentumRule);
HONE_RULE_KERNEL(centered_rmsprop, RMSpropScalars, CenteredRMSpropRule);
HONE_RULE_KERNEL(centered_rmsprop_momentum, RMSpropScalars, CenteredRMSpropMomentumRule);

#if HWY_ONCE
namespace hone::kernels {

StepReport rmsprop_step(const MultiTensorPlan& plan, std::span<const RMSpropGroup> groups,
                        const StepControl& control, Executor& executor) {
  const auto kernel_of = [](const RMSpropGroup& group) {
    if (group.centered) {
      return group.momentum > 0 ? choose_centered_rmsprop_momentum() : choose_centered_rmsprop();
    }
    return group.momentum > 0 ? choose_rmsprop_momentum() : choose_rmsprop();
  };
  return elementwise_step("rmsprop_step", plan, groups, kernel_of, control, executor);
}

}  // namespace hone::kernels
#endif
