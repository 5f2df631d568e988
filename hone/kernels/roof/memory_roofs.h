// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/executor.h"
#include "hone/core/measurer.h"

namespace hone::kernels {

// The bandwidth of main memory as a contestant. It is measured interleaved with others, because it
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

// The bandwidth of main memory for all workers over a buffer much larger than the caches: reading
// only (the bound on decoding), and reading plus writing, either copied past the caches or updated
// in place, whichever is faster (the bound on optimizers).
struct MemoryRoofs {
  double read_gb_per_s = 0, copy_gb_per_s = 0;
};
MemoryRoofs measure_memory_roofs(Executor& executor, Measurer& measurer, bool quick);

// The peak rate of f32 fused multiply-adds for all workers with the strongest enabled instruction
// set.
double measure_peak_gflops(Executor& executor, Measurer& measurer, bool quick);

}  // namespace hone::kernels
