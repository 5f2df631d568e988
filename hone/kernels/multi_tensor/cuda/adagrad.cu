// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<AdagradGroup>> make_cuda_stepper(const MultiTensorLists& lists,
                                                             const CudaStepOptions& options) {
  return cuda::make_stepper<cuda::RulePolicy<AdagradGroup, scalar_rule::AdagradRule>>(lists,
                                                                                      options);
}

}  // namespace hone::kernels
