// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace hone::kernels {

// A cudaStream_t, opaque so that no header names a CUDA type. nullptr: the default stream.
struct Stream {
  void* handle = nullptr;
};

}  // namespace hone::kernels
