// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/bench/bench_run.h"
#include "hone/infer/engine.h"

namespace hone::bench {

inline constexpr Index kTailTokens = 16;  // tokens of a prompt after the shared prefix

// Adds "<subject>/prefix1000": the time from the submission of a prompt of `prefix` + 16 tokens to
// its first token. Each sample generates one token. In "cached", an earlier request with the same
// prefix has ended. In "running", such a request has computed its prompt and still generates. In
// "computed", no request had the prefix. Ratios compare the first two with the last. Tails always
// differ.
// The engine must have no other request and a context of at least prefix_context(prefix). Throws
// Error{InvalidArgument} unless the prefix is positive, and Error{Internal} if a sample takes a
// different part of its prompt from the cache than expected.
void bench_prefix_reuse(const std::string& subject, Index prefix, infer::Engine& engine,
                        BenchRun& run);

Index prefix_context(Index prefix);

}  // namespace hone::bench
