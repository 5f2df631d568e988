// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

// Work that is limited only by memory or only by arithmetic, as a reference for other kernels.
// Everything runs on the calling thread; callers split the range.

// Returns the XOR of `count` 64-bit words. Reads 8 * count bytes.
std::uint64_t xor_words(const std::uint64_t* words, Index count);

// to[i] = from[i] without overlap, with stores that bypass the caches if the processor has them.
// Reads 8 * count bytes and writes as many. Both must be aligned to 64.
void stream_copy(const std::uint64_t* from, std::uint64_t* to, Index count);

// words[i] += 1 modulo 2^64, which has the traffic of an update in place. Reads 8 * count bytes and
// writes as many.
void increment_words(std::uint64_t* words, Index count);

// Computes x <- x * 0.75 + 0.25 in f32 for kFmaChains independent vectors, `rounds` times; every
// lane tends to 1. Vector c starts at lane number / lanes + c, because compilers compute vectors
// that start alike only once. flops counts two per lane and step.
struct FmaWork {
  double flops = 0;
  double sum = 0;  // over all chains and lanes, so that nothing is optimized away
  Index lanes = 0;
};
FmaWork run_fma_chains(Index rounds);
// At least latency * throughput of one core, 4 cycles * 2 units, and at most what fits into 16
// registers.
inline constexpr Index kFmaChains = 12;

std::uint64_t xor_words_ref(const std::uint64_t* words, Index count);
void increment_words_ref(std::uint64_t* words, Index count);
// Reference. `lanes` is the number that a target reported.
FmaWork run_fma_chains_ref(Index rounds, Index lanes);

}  // namespace hone::kernels
