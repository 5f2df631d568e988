// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone {

// Identifies a finished parallel_publish() whose stragglers may still be reading its inputs.
struct PublishTicket {
  std::uint64_t generation = 0;  // 0 if there is nothing to wait for
};

// Work whose chunks may be computed more than once and are committed exactly once.
struct PublishWork {
  Index chunks = 0;
  Index slot_bytes = 0;  // private memory of each running chunk, aligned to 64
  // Must be pure: reads only inputs that do not change and writes only `slot`. May run twice for a
  // chunk.
  std::function<void(Index chunk, std::byte* slot)> compute = {};
  // Copies the slot to its destination. Runs exactly once per chunk.
  std::function<void(Index chunk, const std::byte* slot)> commit = {};
  // If false, the call returns as soon as every chunk is committed, even if a preempted worker is
  // still inside `compute`. The inputs must then stay unchanged until wait_left(ticket) returns.
  bool wait_for_stragglers = true;
};

// Runs the parallel loops of kernels. Kernels start no threads; the caller passes an Executor. Both
// parallel calls return when all work is done and rethrow the first exception of a body. Called
// from inside a body, they run serially on the calling worker.
class Executor {
 public:
  using RangeBody = FunctionRef<void(Index begin, Index end, int worker)>;

  virtual ~Executor() = default;

  // Worker numbers passed to bodies are in [0, workers()).
  virtual int workers() const = 0;

  // Runs body over [0, n) in chunks [i*grain, min(n, (i+1)*grain)), each exactly once, in any
  // order. Chunk boundaries depend only on n and grain, never on the number of workers.
  virtual void parallel_for(Index n, Index grain, RangeBody body) = 0;

  // Recomputes chunks whose worker was preempted; see PublishWork.
  virtual PublishTicket parallel_publish(PublishWork work) = 0;

  // Returns when no worker can still be reading the inputs of that region.
  virtual void wait_left(PublishTicket ticket) = 0;

  // Returns true if wait_left(ticket) would return at once. May return false spuriously.
  virtual bool has_left(PublishTicket ticket) const { return ticket.generation == 0; }
};

// Runs everything on the calling thread, as worker 0.
Executor& serial_executor();

// Returns the grain of a loop over rows of `row_floats` floats. A chunk has about 16 Ki floats:
// half of a 128 KiB share of the level-2 cache.
constexpr Index rows_per_chunk(Index row_floats) {
  return std::max<Index>(1, 16384 / std::max<Index>(1, row_floats));
}

}  // namespace hone
