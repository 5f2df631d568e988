// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/index.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// The bandwidth of main memory as a contestant. Measure it interleaved with others, because it
// changes from second to second on shared machines.
struct MemoryProbe {
  Contestant contestant;  // all workers stream over a buffer much larger than the caches
  double bytes = 0;       // moved by one run
};
enum class MemoryTraffic {
  Read,    // the bound on decoding
  Update,  // in place, counting reads and writes: the bound on optimizers
};
MemoryProbe make_memory_probe(MemoryTraffic traffic, Executor& executor);

// Data of at least this many times the last-level caches come mostly from main memory.
inline constexpr Index kBeyondCaches = 4;

// Returns a clause that explains why the speed of work cannot be stated as a share of the main
// memory bandwidth, or "" if it can. The work reads the same `bytes` repeatedly. The speed cannot
// be stated as a share if a last-level cache of `cache_bytes` (0: unknown, taken as 32 MiB) has
// space for more than a quarter of `bytes`. An ideal cache saves cache_bytes / bytes of the
// traffic, so a stated share is at most 4/3 of the true share.
std::string why_no_memory_share(Index bytes, Index cache_bytes);

// The bandwidth of main memory for all workers over a buffer much larger than the caches. One
// figure is for reading only (the bound on decoding). The other is for reading plus writing, either
// copied past the caches or updated in place, whichever is faster (the bound on optimizers).
struct MemoryRoofs {
  double read_gb_per_s = 0, copy_gb_per_s = 0;
};
MemoryRoofs measure_memory_roofs(Executor& executor, Measurer& measurer, bool quick);

// Returns the peak rate of f32 fused multiply-adds for all workers with the strongest enabled
// instruction set.
double measure_peak_gflops(Executor& executor, Measurer& measurer, bool quick);

}  // namespace hone::kernels
