// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/dtype.h"
#include "hone/core/index.h"

namespace hone::kernels {

// Optimizer slots in fewer than 32 bits.
//   bf16  the upper half of an f32
//   i8    codes of signed numbers: sign, 4 bits of exponent, 3 of mantissa, subnormals
//   u8    codes of numbers >= 0: 5 bits of exponent, 3 of mantissa, subnormals; only 0 becomes 0
// Codes are relative to the largest magnitude (an f32) of their block of kCodeBlock elements, which
// becomes the largest code. A block with NaN, or a signed block with inf, has a NaN scale and
// decodes to NaN. An unsigned block with inf decodes to inf: its parameters stop changing, as in
// PyTorch with an infinite second moment.
//
// The tables of arXiv 2110.02861 cost a binary search per element; these codes need only shifts and
// masks. Rounding is stochastic, so that small changes of an average add up and do not vanish.
inline constexpr Index kCodeBlock = 256;

// Source of random bits: equal keys and element numbers give equal bits.
struct RoundingKey {
  std::uint32_t key = 0;
  Index first_element = 0;  // number, within the tensor, of the first element
  bool nearest = false;     // round to nearest instead
};
// Returns a key that differs between seeds, tensors, steps and slots.
std::uint32_t mix_rounding_key(std::uint64_t seed, std::uint32_t tensor, Index step, int slot);

// `length` elements of dense memory to convert from or to f32. Types: bf16; f16 (to nearest only);
// i8 and u8 with `scales`, one per block. Blocks begin at the first element.
struct NarrowChunk {
  Dtype dtype = Dtype::BFloat16;
  void* data = nullptr;
  float* scales = nullptr;
  Index length = 0;
};
void decode_chunk(const NarrowChunk& from, float* to);
// Rounds stochastically (arXiv 2010.06192): up with the probability of the part cut off. Values
// that the type can represent, inf and NaN do not change.
void encode_chunk(const float* from, const RoundingKey& rounding, const NarrowChunk& to);

// The functions for the strongest enabled instruction set, for callers that convert many chunks:
// choosing reads the environment.
struct StateCodec {
  void (*decode)(const NarrowChunk& from, float* to);
  void (*encode)(const float* from, const RoundingKey& rounding, const NarrowChunk& to);
};
StateCodec choose_state_codec();

// References: one element at a time.
void decode_chunk_ref(const NarrowChunk& from, float* to);
void encode_chunk_ref(const float* from, const RoundingKey& rounding, const NarrowChunk& to);

}  // namespace hone::kernels
