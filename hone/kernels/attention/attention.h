// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/executor.h"
#include "hone/kernels/attention/kv_layout.h"

namespace hone::kernels {

// Causal attention of consecutive query rows of one sequence over its cache:
//   out[r, h] = sum_t softmax_t(scale * q[r, h] . K[t, h / group]) V[t, h / group],
//   t = 0 … first_position + r, group = heads / kv_heads.
// The cache must already contain the keys and values of the rows themselves. Cells beyond the last
// row's position are ignored.
//
// Numerics: a score is a chain of fused multiply-adds over ascending head elements. Softmax runs
// online in blocks of 32 absolute positions within segments of 256, and segments merge in ascending
// order. A row's result therefore depends only on that row and the cache, not on the number of
// rows, the workers or the chunking, bit for bit. A NaN in a query or key makes every output that
// involves it NaN; a value that is not finite may also affect earlier rows of the call.
struct AttentionArgs {
  const float* q = nullptr;  // [rows, heads, head_dim], after RoPE
  Index q_stride = 0;        // elements between rows
  float* out = nullptr;      // [rows, heads, head_dim]; may be q
  Index out_stride = 0;
  Index rows = 0, heads = 0;
  Index first_position = 0;
  float scale = 1;
  KvView cache;
};

// Scratch memory of attention(), which grows on demand and is kept between calls. Concurrent calls
// must not share it.
class AttentionWorkspace {
 public:
  // Returns `count` floats, aligned to 64. Previous contents are lost.
  float* reserve(Index count);

 private:
  Buffer memory_;
};

// Throws Error{InvalidArgument} if shapes disagree or the cache has too few blocks. Few rows
// (decode, speculation) are distributed by (KV head, segment), many rows (prefill) by (KV head,
// query tile).
void attention(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor);

// The reference: plain loops in double over the same cache.
void attention_ref(const AttentionArgs& args);

}  // namespace hone::kernels
