// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<AdamGroup>> make_cuda_stepper(const MultiTensorLists& lists,
                                                          const CudaStepOptions& options) {
  return lists.extra.empty() ? cuda::make_stepper<cuda::AdamPolicy<false>>(lists, options)
                             : cuda::make_stepper<cuda::AdamPolicy<true>>(lists, options);
}

}  // namespace hone::kernels
