// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/rule/sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/multi_tensor/rule/sgd.cc"
#include <hwy/foreach_target.h>  // must come before highway.h

#include "hone/kernels/multi_tensor/rule/rule_kernel-inl.h"

HONE_RULE_KERNEL(sgd, SGDScalars, SGDRule);
HONE_RULE_KERNEL(sgd_momentum, SGDScalars, SGDMomentumRule);

#if HWY_ONCE
namespace hone::kernels {

StepReport sgd_step(const MultiTensorPlan& plan, std::span<const SGDGroup> groups,
                    const StepControl& control, Executor& executor) {
  const auto kernel_of = [](const SGDGroup& group) {
    return group.momentum > 0 ? choose_sgd_momentum() : choose_sgd();
  };
  return elementwise_step("sgd_step", plan, groups, kernel_of, control, executor);
}

}  // namespace hone::kernels
#endif
