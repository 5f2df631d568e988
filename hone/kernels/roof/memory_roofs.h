// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/executor.h"
#include "hone/core/measurer.h"

namespace hone::kernels {

// Main memory's bandwidth as a contestant: taken between the others, because on shared machines it
// changes from second to second.
struct MemoryProbe {
  Contestant contestant;  // streams over a buffer much larger than the caches, all workers together
  double bytes = 0;       // that one run moves
};
enum class MemoryTraffic {
  Read,    // the roof of decode
  Update,  // read and written in place, both counted: the roof of optimizers
};
MemoryProbe make_memory_probe(MemoryTraffic traffic, Executor& executor);

// Bandwidth of main memory over a buffer much larger than the caches, all workers together: reading
// alone (the roof of decode), and reading and writing, both counted, copied past the caches or
// updated in place, whichever is faster (the roof of optimizers).
struct MemoryRoofs {
  double read_gb_per_s = 0, copy_gb_per_s = 0;
};
MemoryRoofs measure_memory_roofs(Executor& executor, Measurer& measurer, bool quick);

// Peak of f32 fused multiply-adds over all workers, with the strongest enabled instruction set.
double measure_peak_gflops(Executor& executor, Measurer& measurer, bool quick);

}  // namespace hone::kernels
