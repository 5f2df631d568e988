// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "hone/core/index.h"

namespace hone::nn {

// How a layer draws the signs that it never trains: terms * low_rank (the width q) rows with
// entries ±1/√low_rank. The layer averages 2 * terms products.
struct SketchRecipe {
  static constexpr Index kBytes = 16;

  std::uint64_t seed = 0;
  Index terms = 1, low_rank = 1;

  // Returns the recipe as u8 [16], little-endian: the seed, then terms and low_rank in 32 bits.
  // Files contain these bytes instead of the signs. Their values are exact in every floating-point
  // type that Module::to() may convert them to.
  torch::Tensor to_bytes() const;
  // Throws Error{InvalidArgument} unless `bytes` has 16 numbers of 0…255 and terms and low_rank are
  // in [1, 2^30].
  static SketchRecipe from_bytes(const torch::Tensor& bytes);

  friend bool operator==(const SketchRecipe&, const SketchRecipe&) = default;
};

// Entries ±magnitude [rows, cols] from stream `stream` of a seed, in the type and on the device of
// `options`. All types and devices have the same signs.
struct SignBlock {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  Index rows = 1, cols = 1;
};
torch::Tensor draw_signs(const SignBlock& block, double magnitude,
                         const torch::TensorOptions& options);

// Packs one bit per element, lowest bit first, set if the element is negative: u8 [ceil(numel / 8)]
// on the CPU. unpack_signs is the inverse: ±1 in f32 [count].
torch::Tensor pack_signs(const torch::Tensor& signs);
torch::Tensor unpack_signs(const torch::Tensor& bits, Index count);

// Uniform in (-bound, bound), f32 on the CPU, from the stream `stream` of a seed.
torch::Tensor draw_uniform(torch::IntArrayRef sizes, double bound, std::uint64_t seed,
                           std::uint64_t stream);

// Converts a buffer of bytes back to u8 after Module::to() has changed its type. May be undefined.
void restore_bytes(torch::Tensor& buffer);

}  // namespace hone::nn
