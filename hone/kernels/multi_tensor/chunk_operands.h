// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// One chunk's slice of every slot, dense. Unused slots are nullptr. Real is float, or double in
// tests that keep all state in double.
template <class Real>
struct BasicChunkOperands {
  Real* param = nullptr;
  Real* grad = nullptr;
  Real* momentum = nullptr;
  Real* second_moment = nullptr;
  Real* extra = nullptr;
  Index length = 0;
  Index offset = 0;  // of the first element within its tensor
};
using ChunkOperands = BasicChunkOperands<float>;

}  // namespace hone::kernels
