// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hone/bench/bench_run.h"

namespace hone::bench {

struct BenchAttentionOptions {
  std::vector<Index> seqs{512, 2048, 8192};
  Index heads = 8, dim = 64;  // dim of a head
  std::vector<Index> features{64, 256};
  std::vector<std::string> kernels{"softmax"};  // also relu
  std::vector<std::string> passes{"forward"};   // also train: forward and backward
  bool causal = false;
  bool layer = false;                        // includes the projections of inputs and output
  double norm = 1;                           // root mean square of the norms of queries and of keys
  std::vector<std::string> against{"sdpa"};  // also loop
  int threads = 0;                           // LibTorch threads, for all sides; 0: usable_cpus()
};

// Compares random-feature attention in f32, on one sequence of seeded normal numbers, with
//   sdpa  at::scaled_dot_product_attention
//   loop  one token after the other (causal only; in its own case, because it takes so long;
//         skipped above 2048 tokens, and if its graph would keep more than 1 GiB)
//
// Rows of cases "core/m64/softmax/causal/forward/t2048" have, for the outputs of 64 queries:
//   rel_error       |out - exact| / |exact|, exact attention in f64
//   kernel_error    for hone and loop: the same against attention with the weights that the
//                   features estimate, which for relu differ from the softmax weights
// They also have peak_memory_mb, the peak allocation of a run: tensors as a MemoryMeter counts them
// and the buffers of hone's kernels, but not those inside BLAS. hone's row has memory_over_sdpa,
// the quotient. For hone and sdpa, exponents have the growth of time and memory with the number of
// tokens, if there are two different numbers.
//
// Throws Error{InvalidArgument} for unknown names and sizes out of range, before anything is
// measured.
void bench_attention(const BenchAttentionOptions& options, BenchRun& run);

}  // namespace hone::bench
