// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "hone/bench/bench_llm.h"

namespace hone::bench {

struct BenchSpecOptions {
  std::vector<double> acceptances;        // probabilities, 0 … 1, that a draft is right
  std::vector<Index> sequences = {1, 8};  // sequences that decode together
  Index tokens = 128;                     // tokens of each sequence
  std::optional<Index> depth;             // drafts of a round; nullopt: as many as pay off
};

// Compares greedy decoding with and without speculation, in one engine and interleaved.
// "llama-1b/q4_0/spec0.9x8" is 8 sequences whose drafts are right with probability 0.9. Drafts
// replay the text that the model generates, which is computed beforehand. Each is replaced by
// another token with probability 1 - 0.9, so that the result depends on the machine and not on a
// text. Drafts cost nothing, which is almost true for n-grams.
// Rows have tokens_per_s over all sequences. The first token of each sequence, which comes from its
// prompt, is not timed. A further row has drafted, examined, accepted, rounds and k_mean of all
// samples. Models and shapes come from `models`. Throws Error{InvalidArgument} for probabilities,
// sequences (1 to 64), tokens (1 to 4096) or a depth out of range.
void bench_spec(const BenchLlmOptions& models, const BenchSpecOptions& options, BenchRun& run,
                Executor& executor);

}  // namespace hone::bench
