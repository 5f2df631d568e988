// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

// Work that is limited by nothing but memory or arithmetic: what other kernels are measured
// against. All run on the calling thread; callers split the range.

// XOR of `count` words: reads 8 * count bytes.
std::uint64_t xor_words(const std::uint64_t* words, Index count);

// to[i] = from[i], no overlap, with stores that bypass the caches where the processor has them:
// reads and writes 8 * count bytes each. Both aligned to 64.
void stream_copy(const std::uint64_t* from, std::uint64_t* to, Index count);

// words[i] += 1 modulo 2^64, the traffic of an update in place: reads and writes 8 * count bytes.
void increment_words(std::uint64_t* words, Index count);

// kFmaChains independent vectors x <- x * 0.75 + 0.25 in f32, `rounds` times, starting at lane
// number / lanes; every lane tends to 1. flops counts two per lane and step.
struct FmaWork {
  double flops = 0;
  double sum = 0;  // over all chains and lanes, so that nothing is optimized away
  Index lanes = 0;
};
FmaWork run_fma_chains(Index rounds);
// Covers latency * throughput of one core: 4 cycles * 2 units, and what is left of 16 registers.
inline constexpr Index kFmaChains = 12;

std::uint64_t xor_words_ref(const std::uint64_t* words, Index count);
void increment_words_ref(std::uint64_t* words, Index count);
// `lanes` as a target reported it.
FmaWork run_fma_chains_ref(Index rounds, Index lanes);

}  // namespace hone::kernels
