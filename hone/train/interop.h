// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone {

// The only conversion between LibTorch's tensors and the kernels' views.

// Returns a view of the tensor's memory; the caller keeps the tensor alive. Throws
// Error{Unsupported} that names `what` unless the tensor is dense CPU memory (not sparse,
// quantized, complex or on another device), its type has a hone::Dtype, and it has at most
// Shape::kMaxRank dimensions.
TensorView view_of(const at::Tensor& tensor, std::string_view what);
// Like view_of() above, for a tensor on this device. The host must not access memory of a device
// other than the CPU.
TensorView view_of(const at::Tensor& tensor, c10::Device device, std::string_view what);

// Returns the hone type of a LibTorch type. Throws Error{Unsupported} that names `what` if there is
// none.
Dtype dtype_of(at::ScalarType type, std::string_view what);
at::ScalarType scalar_type_of(Dtype dtype);

// The bytes of a dense tensor on the CPU, which the caller keeps alive. None if it is undefined.
std::span<const std::byte> tensor_bytes(const at::Tensor& tensor);

// Informs autograd that the tensor's memory was written to. (Inference tensors have no version
// counter.)
inline void bump_version(const at::Tensor& tensor) {
  at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->version_counter().enabled()) impl->bump_version();
}

// Returns the number of writes to the tensor, by which layers detect that a buffer was loaded.
// Inference tensors do not count writes.
inline std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

// Tensors that something was computed from, some of which may be undefined.
class Sources {
 public:
  void set(at::TensorList tensors);
  // Whether these are the same tensors, and none was written to since.
  bool are(at::TensorList tensors) const;

 private:
  std::vector<at::Tensor> tensors_;  // kept, so that no other tensor gets their memory
  std::vector<std::int64_t> versions_;
};

// Runs parallel loops on LibTorch's own threads (at::get_num_threads() of them), so that a program
// has a single pool: two pools would spin against each other. Workers take chunks from their own
// shares, and steal when their share is empty. parallel_publish computes each chunk once.
Executor& libtorch_executor();

}  // namespace hone
