// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone {

// The only conversion between LibTorch's tensors and the kernels' views.

// A view of the tensor's memory; the caller keeps the tensor alive. Throws Error{Unsupported} that
// names `what` for tensors that are not dense CPU memory (sparse, quantized, complex, other
// devices), whose type has no hone::Dtype, or with more than Shape::kMaxRank dimensions.
TensorView view_of(const at::Tensor& tensor, std::string_view what);
// The same for a tensor on this device. Memory of a device other than the CPU must not be accessed
// by the host.
TensorView view_of(const at::Tensor& tensor, c10::Device device, std::string_view what);

// The hone type of a LibTorch type; Error{Unsupported} naming `what`.
Dtype dtype_of(at::ScalarType type, std::string_view what);
at::ScalarType scalar_type_of(Dtype dtype);

// Tells autograd that the tensor's memory was written to. (Inference tensors have no version
// counter.)
inline void bump_version(const at::Tensor& tensor) {
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->version_counter().enabled()) impl->bump_version();
}

// Runs parallel loops on LibTorch's own threads (at::get_num_threads() of them), so that a program
// has one pool: two pools would spin against each other. Chunks are taken from per-worker shares
// and stolen when a share is empty. parallel_publish computes each chunk once.
Executor& libtorch_executor();

}  // namespace hone
