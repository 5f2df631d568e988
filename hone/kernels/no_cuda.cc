// SPDX-License-Identifier: Apache-2.0
// What the CUDA parts answer in a build without CUDA; the build takes this file or the .cu files.
#include <stdexcept>

#include "hone/kernels/cuda/device_info.h"

namespace hone::kernels {

CudaInfo query_cuda() {
  CudaInfo info;
  info.reason = "this build has no CUDA (HONE_WITH_CUDA=OFF)";
  return info;
}

std::unique_ptr<CudaCopy> make_cuda_copy(int, std::int64_t) {
  throw std::runtime_error(query_cuda().reason);
}

}  // namespace hone::kernels
