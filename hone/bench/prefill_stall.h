// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "hone/bench/bench_run.h"
#include "hone/infer/engine.h"

namespace hone::bench {

// Measures how a prefill delays decodes. Adds a row "<subject>/beside8192" for each number of
// sequences that decode while the engine computes a prompt of `prompt` tokens. Over all rounds
// (BenchOptions::repeat; if 0, 1 in a quick run, else 3), the row has
//   alone_ms                   the median time between two tokens before the prompt arrives
//   beside_ms, p99_ms, max_ms  the median, the 99th percentile and the largest of these times,
//                              until the first token of the prompt
//   p99_ratio                  p99_ms / alone_ms
//   first_token_s              the median of the seconds to that token
// The engine must have no other request, capacity for one more sequence, and a context of at least
// stall_context(prompt).
// Throws Error{InvalidArgument} for a prompt without tokens, and Error{Cancelled} if the run is
// stopped.
void bench_prefill_stall(const std::string& subject, Index prompt, std::span<const Index> sequences,
                         infer::Engine& engine, BenchRun& run);

Index stall_context(Index prompt);

}  // namespace hone::bench
