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
// The cache must already hold the keys and values of the rows themselves. Cells beyond the last
// row's position are never used, whatever they hold.
//
// Numerics: scores are chains of fused multiply-adds over ascending head elements; softmax runs
// online in blocks of 32 absolute positions inside segments of 256, segments merge in ascending
// order. So a row's bits depend on that row and the cache, not on rows, workers or where a chunk
// began. A NaN in a query or key makes every output that it takes part in NaN; a value that is not
// finite may also reach earlier rows of the call.
struct AttentionArgs {
  const float* q = nullptr;  // [rows, heads, head_dim], turned by RoPE
  Index q_stride = 0;        // elements between rows
  float* out = nullptr;      // [rows, heads, head_dim]; may be q
  Index out_stride = 0;
  Index rows = 0, heads = 0;
  Index first_position = 0;
  float scale = 1;
  KvView cache;
};

// Memory that attention() works in, grown on demand and kept between calls. Not shared by
// concurrent calls.
class AttentionWorkspace {
 public:
  // `count` floats, aligned to 64; earlier contents are lost.
  float* reserve(Index count);

 private:
  Buffer memory_;
};

// Error{InvalidArgument} when shapes disagree or the cache has too few blocks. Few rows (decode,
// speculation) are spread as (KV head, segment), many rows (prefill) as (KV head, query tile).
void attention(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor);

// Plain loops in double over the same cache.
void attention_ref(const AttentionArgs& args);

}  // namespace hone::kernels
