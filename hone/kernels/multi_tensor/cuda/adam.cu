// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"
#include "hone/kernels/multi_tensor/rule/adam.h"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<AdamGroup>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                          const CudaStepOptions& options) {
  return lists.extra.empty()
             ? cuda::make_stepper<cuda::RulePolicy<AdamGroup, scalar_rule::AdamRule>>(lists,
                                                                                      options)
             : cuda::make_stepper<cuda::RulePolicy<AdamGroup, scalar_rule::AMSGradRule>>(lists,
                                                                                         options);
}

}  // namespace hone::kernels
