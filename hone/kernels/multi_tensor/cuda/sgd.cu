// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/stepper.cuh"
#include "hone/kernels/multi_tensor/rule/sgd.h"

namespace hone::kernels {

template <>
std::unique_ptr<CudaStepper<SGDGroup>> make_rule_on_cuda(const MultiTensorLists& lists,
                                                         const CudaStepOptions& options) {
  return lists.momentum.empty()
             ? cuda::make_stepper<cuda::RulePolicy<SGDGroup, scalar_rule::SGDRule>>(lists, options)
             : cuda::make_stepper<cuda::RulePolicy<SGDGroup, scalar_rule::SGDMomentumRule>>(
                   lists, options);
}

}  // namespace hone::kernels
