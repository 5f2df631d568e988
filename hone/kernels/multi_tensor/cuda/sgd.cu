// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<SGDGroup>> make_cuda_stepper(const MultiTensorLists& lists,
                                                         const CudaStepOptions& options) {
  return lists.momentum.empty()
             ? cuda::make_stepper<cuda::RulePolicy<SGDGroup, scalar_rule::SGDRule>>(lists, options)
             : cuda::make_stepper<cuda::RulePolicy<SGDGroup, scalar_rule::SGDMomentumRule>>(
                   lists, options);
}

}  // namespace hone::kernels
