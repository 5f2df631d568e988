// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/dtype.h"
#include "hone/core/index.h"
#include "hone/kernels/attention/kv_layout.h"

namespace hone::infer {

inline constexpr Index kBlockTokens = kernels::kKvBlockTokens;

// The layers of a model that share a window and a shape of KV heads, and therefore one block table
// per sequence. A model has one group, or one per kind of layer.
struct LayerGroup {
  Index layers = 0, kv_heads = 0;
  Index key_dim = 0, value_dim = 0;
  // Float16, Float32, or Int8 with an f16 scale per token and KV head, one for the key and one for
  // the value.
  Dtype dtype = Dtype::Float16;
  // A token attends to the last `window` positions, including its own; 0 means all positions.
  Index window = 0;
};

// The first position that the token at `position` reads.
Index first_read(const LayerGroup& group, Index position);

// The first block that a sequence of `length` tokens still needs. Earlier blocks are wholly outside
// the window of the token at position `length`.
Index first_block(const LayerGroup& group, Index length);

// Bytes of a block, which stores kBlockTokens tokens of all layers of the group:
//   layers * kv_heads * (key_dim * w + value_dim * w + scales) * 32,
// with w = 2 (f16), 4 (f32) or 1 byte (int8), and scales = 4 bytes for int8, otherwise 0. Throws
// Error{InvalidArgument} for other dtypes and for sizes that are not positive or overflow.
Index kv_block_bytes(const LayerGroup& group);

// Bytes of the blocks of a sequence with `length` tokens in the cache, without the blocks that the
// token at position `reader` (the next one by default) no longer needs.
Index kv_bytes(std::span<const LayerGroup> groups, Index length);
Index kv_bytes(std::span<const LayerGroup> groups, Index length, Index reader);

// Bytes that one token takes in all groups.
Index kv_token_bytes(std::span<const LayerGroup> groups);

// An upper bound of the bytes that a sequence uses at any time while it grows to `length` tokens in
// steps of at most `step` tokens.
Index kv_peak_bytes(std::span<const LayerGroup> groups, Index length, Index step);

// kv_block_bytes() of each group.
std::vector<Index> kv_block_sizes(std::span<const LayerGroup> groups);

// The size of a cache for `sequences` texts of `context` tokens: at most `room` bytes, or the size
// of some blocks if `room` is too small for them.
Index fitting_kv_bytes(std::span<const LayerGroup> groups, Index context, Index step,
                       Index sequences, Index room);

}  // namespace hone::infer
