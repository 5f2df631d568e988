// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/bench/bench_run.h"
#include "hone/infer/engine.h"

namespace hone::bench {

inline constexpr Index kTailTokens = 16;  // of a prompt, behind the shared prefix

// Adds "<subject>/prefix1000": the time from the submission of a prompt of `prefix` + 16 tokens to
// its first token, with one token a sample. In "cached", an earlier request that has ended had the
// same prefix; in "running", a request with it has its prompt computed and generates meanwhile; in
// "computed", no request had it. Ratios are those of the first two to the last. Tails always
// differ. The engine must have no other request and a context of at least prefix_context(prefix).
// Throws Error{InvalidArgument} unless the prefix is positive, and Error{Internal} if a sample
// takes another part of its prompt from the cache than it should.
void bench_prefix_reuse(const std::string& subject, Index prefix, infer::Engine& engine,
                        BenchRun& run);

Index prefix_context(Index prefix);

}  // namespace hone::bench
