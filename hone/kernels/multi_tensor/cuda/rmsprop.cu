// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<RMSpropGroup>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                             const CudaStepOptions& options) {
  using namespace scalar_rule;
  const auto make = [&]<class Rule>(Rule*) {
    return cuda::make_stepper<cuda::RulePolicy<RMSpropGroup, Rule>>(lists, options);
  };
  const bool momentum = !lists.momentum.empty(), centered = !lists.extra.empty();
  if (momentum && centered) return make(static_cast<CenteredRMSpropMomentumRule*>(nullptr));
  if (centered) return make(static_cast<CenteredRMSpropRule*>(nullptr));
  return momentum ? make(static_cast<RMSpropMomentumRule*>(nullptr))
                  : make(static_cast<RMSpropRule*>(nullptr));
}

}  // namespace hone::kernels
