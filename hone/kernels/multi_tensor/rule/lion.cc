// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/lion.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/lion.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(lion, LionScalars, LionRule);

#if HWY_ONCE
namespace hone::kernels {

StepReport lion_step(const MultiTensorPlan& plan, std::span<const LionGroup> groups,
                     const StepControl& control, Executor& executor) {
  const auto kernel_of = [](const LionGroup&) { return choose_lion(); };
  return elementwise_step("lion_step", plan, groups, kernel_of, control, executor);
}

}  // namespace hone::kernels
#endif
