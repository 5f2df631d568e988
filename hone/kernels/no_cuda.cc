// SPDX-License-Identifier: Apache-2.0
// Replaces the .cu files in a build without CUDA.
#include <stdexcept>

#include "hone/core/check.h"
#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/multi_tensor/cuda/cuda_step.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"

namespace hone::kernels {

CudaInfo query_cuda() {
  CudaInfo info;
  info.reason = "this build has no CUDA (HONE_WITH_CUDA=OFF)";
  return info;
}

std::unique_ptr<CudaCopy> make_cuda_copy(int, std::int64_t) {
  throw std::runtime_error(query_cuda().reason);
}

namespace {
[[noreturn]] void fail_without_cuda() {
  fail_unsupported("multi_tensor cuda", "This build has no CUDA (HONE_WITH_CUDA=OFF).");
}
}  // namespace

template <class Group>
std::unique_ptr<CudaStepper<Group>> make_rule_on_cuda(const MultiTensorLists&,
                                                      const CudaStepOptions&) {
  fail_without_cuda();
}
template std::unique_ptr<CudaStepper<SGDGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                  const CudaStepOptions&);
template std::unique_ptr<CudaStepper<AdamGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                   const CudaStepOptions&);
template std::unique_ptr<CudaStepper<TAMGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                  const CudaStepOptions&);
template std::unique_ptr<CudaStepper<LionGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                   const CudaStepOptions&);
template std::unique_ptr<CudaStepper<AdagradGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                      const CudaStepOptions&);
template std::unique_ptr<CudaStepper<RMSpropGroup>> make_rule_on_cuda(const MultiTensorLists&,
                                                                      const CudaStepOptions&);

}  // namespace hone::kernels
