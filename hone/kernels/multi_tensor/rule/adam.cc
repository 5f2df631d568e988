// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/adam.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(adam, AdamScalars, AdamRule);
HONE_RULE_KERNEL(amsgrad, AdamScalars, AMSGradRule);

#if HWY_ONCE
namespace hone::kernels {

StepReport adam_step(const MultiTensorPlan& plan, std::span<const AdamGroup> groups,
                     const StepControl& control, Executor& executor) {
  const auto kernel_of = [](const AdamGroup& group) {
    return group.amsgrad ? choose_amsgrad() : choose_adam();
  };
  return elementwise_step("adam_step", plan, groups, kernel_of, control, executor);
}

}  // namespace hone::kernels
#endif
