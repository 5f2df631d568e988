// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "hone/kernels/attention/attention.h"

// Private to kernels/attention: the unit of work that is compiled per instruction set, and how the
// drivers divide a call into such units.
namespace hone::kernels {

// The running softmax of `rows` query heads. The result so far is acc / sum, with scores relative
// to max.
struct SoftmaxState {
  float* max = nullptr;  // [rows]; -infinity if nothing was added
  float* sum = nullptr;  // [rows]
  float* acc = nullptr;  // [rows, head_dim]

  // floats() is the size of a state; at() returns a state with pointers into such memory.
  static Index floats(Index rows, Index head_dim) { return round_up(rows * (head_dim + 2), 16); }
  static SoftmaxState at(float* memory, Index rows, Index head_dim) {
    return {memory + rows * head_dim, memory + rows * (head_dim + 1), memory};
  }
};

// `tokens` query rows of one sequence for all heads of the group of `kv_head`. Row r of the tile is
// query row first_row + r / group, head kv_head * group + r % group.
struct AttentionTile {
  const AttentionArgs* args = nullptr;
  BlockPointers blocks = {};
  Index kv_head = 0, tokens = 0;
  Index first_row = 0;       // in q and out
  Index first_position = 0;  // position of first_row
  float* scratch = nullptr;  // tile_scratch_floats() floats

  Index group() const { return args->heads / args->layout.kv_heads; }
  Index rows() const { return tokens * group(); }
  // limit() is the last position that a row sees, start() the first.
  Index limit(Index row) const { return first_position + row / group(); }
  Index start(Index row) const {
    return args->window > 0 ? std::max<Index>(0, limit(row) + 1 - args->window) : 0;
  }
  Index first_segment() const { return start(0) / kKvSegmentTokens; }
  Index last_segment() const { return limit(rows() - 1) / kKvSegmentTokens; }
  KvView cache() const { return {args->layout, args->layer, blocks}; }
};

// The scratch has the scaled queries [rows, head_dim], probabilities [rows, 32], factors [rows],
// and the keys and values of one block as f32.
inline Index tile_scratch_floats(Index rows, Index head_dim) {
  return round_up(rows * (head_dim + kKvBlockTokens + 1) + 2 * kKvBlockTokens * head_dim, 16);
}

}  // namespace hone::kernels
