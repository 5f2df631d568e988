// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "hone/bench/bench_llm.h"

namespace hone::bench {

struct BenchSpecOptions {
  std::vector<double> acceptances;        // probabilities, 0 … 1, that a draft is right
  std::vector<Index> sequences = {1, 8};  // that decode together
  Index tokens = 128;                     // of each
  std::optional<Index> depth;             // drafts of a round; without a value, as many as pay
};

// Greedy decoding with speculation beside decoding without, in one engine and interleaved:
// "llama-1b/q4_0/spec0.9x8" is 8 sequences whose drafts are right with probability 0.9. Drafts
// replay what the model says, which is found out before, and each is replaced by another token with
// probability 1 - 0.9, so that the figure depends on the machine and not on a text. They cost
// nothing, as drafts of n-grams almost do. Rows carry tokens_per_s over all sequences; the first
// token of each, which comes from its prompt, is not timed. A further row has drafted, examined,
// accepted, rounds and k_mean of all samples. Takes models and shapes from `models`.
// Error{InvalidArgument} for probabilities, sequences (1 to 64), tokens (1 to 4096) or a depth out
// of range.
void bench_spec(const BenchLlmOptions& models, const BenchSpecOptions& options, BenchRun& run,
                Executor& executor);

}  // namespace hone::bench
