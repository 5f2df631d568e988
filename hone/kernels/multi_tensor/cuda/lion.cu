// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<LionGroup>> make_cuda_stepper(const MultiTensorLists& lists,
                                                          const CudaStepOptions& options) {
  return cuda::make_stepper<cuda::RulePolicy<LionGroup, scalar_rule::LionRule>>(lists, options);
}

}  // namespace hone::kernels
