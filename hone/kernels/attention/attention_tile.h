// SPDX-License-Identifier: Apache-2.0
#pragma once

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

  // The number of floats of a state, and a state with pointers into such memory.
  static Index floats(Index rows, Index head_dim) { return round_up(rows * (head_dim + 2), 16); }
  static SoftmaxState at(float* memory, Index rows, Index head_dim) {
    return {memory + rows * head_dim, memory + rows * (head_dim + 1), memory};
  }
};

// Query rows [first_row, first_row + tokens) of `args` for all heads of the group of `kv_head`. Row
// r of the tile is token first_row + r / group, head kv_head * group + r % group.
struct AttentionTile {
  const AttentionArgs* args = nullptr;
  Index kv_head = 0, first_row = 0, tokens = 0;
  float* scratch = nullptr;  // tile_scratch_floats()

  Index group() const { return args->heads / args->cache.layout.kv_heads; }
  Index rows() const { return tokens * group(); }
  Index limit(Index row) const { return args->first_position + first_row + row / group(); }
};

// The scratch holds the scaled queries [rows, head_dim], probabilities [rows, 32], factors [rows],
// and the keys and values of one block as f32.
inline Index tile_scratch_floats(Index rows, Index head_dim) {
  return round_up(rows * (head_dim + kKvBlockTokens + 1) + 2 * kKvBlockTokens * head_dim, 16);
}

}  // namespace hone::kernels
