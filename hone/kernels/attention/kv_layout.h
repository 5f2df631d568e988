// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hone/core/dtype.h"
#include "hone/core/index.h"

namespace hone::kernels {

inline constexpr Index kKvBlockTokens = 32;     // tokens per block
inline constexpr Index kKvKeyLanes = 16;        // adjacent tokens in a key plane
inline constexpr Index kKvSegmentTokens = 256;  // absolute positions per softmax pass

// Returns true if a cache may have this type.
constexpr bool is_kv_dtype(Dtype dtype) {
  return dtype == Dtype::Float16 || dtype == Dtype::Float32 || dtype == Dtype::Int8;
}

// Layout of a block, which contains kKvBlockTokens tokens of all layers of a group:
//   [layer][kv_head]{ keys [32/16][head_dim][16 tokens], values [32 tokens][head_dim],
//                     key scales [32], value scales [32] }
// Keys are transposed in groups of 16 tokens, so that a score is a chain of multiply-adds per lane
// and needs no horizontal sum. Only int8 has scales: one f16 per token, so that an element is
// int8 * scale. There is no padding: 2 * 32 * head_dim elements per layer and head.
struct KvLayout {
  Dtype dtype = Dtype::Float16;  // Float16, Float32 or Int8
  Index layers = 0, kv_heads = 0, head_dim = 0;

  Index plane_bytes() const { return kKvBlockTokens * head_dim * bytes_of(dtype); }
  Index scale_bytes() const { return dtype == Dtype::Int8 ? kKvBlockTokens * 2 : 0; }
  Index head_bytes() const { return 2 * (plane_bytes() + scale_bytes()); }
  Index layer_bytes() const { return kv_heads * head_bytes(); }
  Index block_bytes() const { return layers * layer_bytes(); }
  Index key_offset(Index layer, Index kv_head) const {
    return layer * layer_bytes() + kv_head * head_bytes();
  }
  Index value_offset(Index layer, Index kv_head) const {
    return key_offset(layer, kv_head) + plane_bytes();
  }
  Index key_scale_offset(Index layer, Index kv_head) const {
    return value_offset(layer, kv_head) + plane_bytes();
  }
  Index value_scale_offset(Index layer, Index kv_head) const {
    return key_scale_offset(layer, kv_head) + scale_bytes();
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
  // f16 bits, one for each token of the block; only for int8.
  std::uint16_t* key_scales(Index block, Index kv_head) const {
    return reinterpret_cast<std::uint16_t*>(blocks[static_cast<std::size_t>(block)] +
                                            layout.key_scale_offset(layer, kv_head));
  }
  std::uint16_t* value_scales(Index block, Index kv_head) const {
    return reinterpret_cast<std::uint16_t*>(blocks[static_cast<std::size_t>(block)] +
                                            layout.value_scale_offset(layer, kv_head));
  }
};

// Writes heads [head_begin, head_end) of k and v [rows, kv_heads, head_dim] to positions
// first_position…. Rows of k and v are `stride` elements apart. f16 rounds to nearest even.
//
// int8 stores round(x / scale), -127 to 127, where scale is the smallest f16 that is at least max
// |x| / 127 over the head: |error| <= scale / 2. A head gets the scale NaN if an element is not
// finite or exceeds 127 * 65504 in magnitude.
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
