// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hone::kernels {

// An opaque cudaStream_t, so that no header names a CUDA type. nullptr is the default stream.
struct Stream {
  void* handle = nullptr;
};

}  // namespace hone::kernels
