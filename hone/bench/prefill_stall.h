// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "hone/bench/bench_run.h"
#include "hone/infer/engine.h"

namespace hone::bench {

// Adds rows "<subject>/beside8192": the times between the tokens of sequences that decode while the
// engine computes a prompt of `prompt` tokens, for each number of sequences. Rows carry, over all
// rounds (BenchOptions::repeat, otherwise 3, or 1 of a quick run), the median time between two
// tokens before the prompt arrived (alone_ms), the median, the 99th percentile and the largest of
// those until its first token (beside_ms, p99_ms, max_ms), p99_ms / alone_ms (p99_ratio), and the
// median of the seconds to that token (first_token_s). The engine must have no other request, room
// for one sequence more, and a context of at least stall_context(prompt).
// Throws Error{InvalidArgument} for prompts of no token, and Error{Cancelled} if the run is
// stopped.
void bench_prefill_stall(const std::string& subject, Index prompt, std::span<const Index> sequences,
                         infer::Engine& engine, BenchRun& run);

Index stall_context(Index prompt);

}  // namespace hone::bench
