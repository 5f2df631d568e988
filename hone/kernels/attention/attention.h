// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/attention/kv_layout.h"

namespace hone::kernels {

// Query rows of one sequence, at adjacent positions.
struct AttentionSequence {
  Index rows = 0;
  Index first_position = 0;  // position of the first row
  // Position p is in blocks[p / kKvBlockTokens]. Blocks behind the window of the first row may be
  // null.
  BlockPointers blocks = {};
};

// Causal attention of the rows of several sequences, each over its own cache. For the row at
// position p,
//   out[h] = sum_t softmax_t(scale * q[h] . K[t, h / group]) V[t, h / group],
//   t = 0 … p, or p - window + 1 … p with a window; group = heads / kv_heads.
// If soft_cap is not 0, it caps the scaled scores (arXiv 2408.00118). The caches must already
// contain the keys and values of the rows themselves. Cells beyond the last row's position are
// ignored.
//
// Numerics: a score is a chain of fused multiply-adds over ascending head elements. int8 elements
// enter as integers; scores are multiplied by the scales of the keys, and probabilities by the
// scales of the values. Softmax runs online in blocks of 32 absolute positions within segments of
// 256, and segments merge in ascending order. A row's result therefore depends, bit for bit, only
// on that row and its cache, not on the other rows and sequences, the workers or the chunking. A
// NaN in a query or key makes every output that uses it NaN. A value that is not finite may also
// affect earlier rows of the call.
struct AttentionArgs {
  const float* q = nullptr;  // [rows of all sequences, heads, head_dim], after RoPE
  Index q_stride = 0;        // elements between rows
  float* out = nullptr;      // like q; must be other memory
  Index out_stride = 0;
  Index heads = 0;
  float scale = 1;
  float soft_cap = 0;  // scores s become soft_cap tanh(s / soft_cap); 0: s
  Index window = 0;    // positions that a row sees, itself included; 0: all
  KvLayout layout = {};
  Index layer = 0;
  std::span<const AttentionSequence> sequences = {};
  // If false, the call returns when `out` is complete, even if a preempted worker may still read q,
  // `sequences` and the caches. Keep these until executor.wait_left(ticket) returns.
  bool wait_for_stragglers = true;
};

// Throws Error{InvalidArgument} if shapes disagree or a cache has too few blocks. Runs one parallel
// region for all sequences over items (sequence, KV head, tile of rows). If there are few items,
// tiles of few rows (decode, speculation) are also divided into segments.
PublishTicket attention(const AttentionArgs& args, Executor& executor);

// Reference: plain loops in double over the same cache.
void attention_ref(const AttentionArgs& args);

}  // namespace hone::kernels
