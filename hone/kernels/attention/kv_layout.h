// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "hone/core/dtype.h"
#include "hone/core/index.h"

namespace hone::kernels {

inline constexpr Index kKvBlockTokens = 32;     // tokens per block
inline constexpr Index kKvKeyLanes = 16;        // adjacent tokens in a key plane
inline constexpr Index kKvSegmentTokens = 256;  // absolute positions per softmax pass

// The layout of a block, which holds kKvBlockTokens tokens of *all* layers of one sequence:
//   [layer][kv_head]{ keys [32/16][head_dim][16 tokens], values [32 tokens][head_dim] }
// Keys are transposed in groups of 16 tokens, so that a score is a chain of multiply-adds per lane
// and needs no horizontal sum. There is no padding: 2 * 32 * head_dim elements per layer and head.
struct KvLayout {
  Dtype dtype = Dtype::Float16;  // Float16 or Float32
  Index layers = 0, kv_heads = 0, head_dim = 0;

  Index plane_bytes() const { return kKvBlockTokens * head_dim * bytes_of(dtype); }
  Index layer_bytes() const { return kv_heads * 2 * plane_bytes(); }
  Index block_bytes() const { return layers * layer_bytes(); }
  Index key_offset(Index layer, Index kv_head) const {
    return layer * layer_bytes() + kv_head * 2 * plane_bytes();
  }
  Index value_offset(Index layer, Index kv_head) const {
    return key_offset(layer, kv_head) + plane_bytes();
  }
  // Offsets in elements from the start of a plane.
  Index key_element(Index token, Index i) const {
    return (token / kKvKeyLanes * head_dim + i) * kKvKeyLanes + token % kKvKeyLanes;
  }
};

// The blocks of a sequence: position p is in block p / kKvBlockTokens.
using BlockPointers = std::span<std::byte* const>;

// A non-owning view of one layer of a sequence's cache.
struct KvView {
  KvLayout layout;
  Index layer = 0;
  BlockPointers blocks;

  std::byte* keys(Index block, Index kv_head) const {
    return blocks[static_cast<std::size_t>(block)] + layout.key_offset(layer, kv_head);
  }
  std::byte* values(Index block, Index kv_head) const {
    return blocks[static_cast<std::size_t>(block)] + layout.value_offset(layer, kv_head);
  }
};

// Writes heads [head_begin, head_end) of k and v [rows, kv_heads, head_dim], whose rows are
// `stride` elements apart, to positions first_position…. f16 rounds to nearest even.
struct KvWriteArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  Index stride = 0;
  Index rows = 0, first_position = 0;
  Index head_begin = 0, head_end = 0;
  KvView cache;
};
void write_kv(const KvWriteArgs& args);

}  // namespace hone::kernels
