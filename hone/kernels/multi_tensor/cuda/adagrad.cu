// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"
#include "hone/kernels/multi_tensor/rule/adagrad.h"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<AdagradGroup>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                             const CudaStepOptions& options) {
  return cuda::make_stepper<cuda::RulePolicy<AdagradGroup, scalar_rule::AdagradRule>>(lists,
                                                                                      options);
}

}  // namespace hone::kernels
