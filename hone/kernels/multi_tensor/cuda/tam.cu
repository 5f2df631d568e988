// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<TAMGroup>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                         const CudaStepOptions& options) {
  return lists.second_moment.empty()
             ? cuda::make_stepper<cuda::RulePolicy<TAMGroup, scalar_rule::TAMRule>>(lists, options)
             : cuda::make_stepper<cuda::RulePolicy<TAMGroup, scalar_rule::AdaTAMRule>>(lists,
                                                                                       options);
}

}  // namespace hone::kernels
