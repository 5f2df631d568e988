// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/adagrad.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/adagrad.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(adagrad, AdagradScalars, AdagradRule);

#if HWY_ONCE
namespace hone::kernels {

StepReport adagrad_step(const MultiTensorPlan& plan, std::span<const AdagradGroup> groups,
                        const StepControl& control, Executor& executor) {
  const auto kernel_of = [](const AdagradGroup&) { return choose_adagrad(); };
  return elementwise_step("adagrad_step", plan, groups, kernel_of, control, executor);
}

}  // namespace hone::kernels
#endif
