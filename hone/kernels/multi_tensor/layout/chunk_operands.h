// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "hone/core/index.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// A chunk's part of a moment that is narrow in memory; no data if the rule has no such slot.
struct NarrowMoment {
  NarrowChunk chunk;
  RoundingKey rounding;
};
// Both are bf16, or both are 8-bit codes (i8 and u8). The length is a multiple of kCodeBlock.
struct NarrowMoments {
  NarrowMoment momentum, second_moment;
};

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
  Index offset = 0;                       // index of the first element within its tensor
  const NarrowMoments* narrow = nullptr;  // replaces momentum and second_moment
  // The scaled gradient is limited to [-grad_limit, grad_limit]; NaN stays NaN.
  float grad_limit = std::numeric_limits<float>::infinity();
};
using ChunkOperands = BasicChunkOperands<float>;

}  // namespace hone::kernels
