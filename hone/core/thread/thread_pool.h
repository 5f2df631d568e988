// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/core/thread/executor.h"

namespace hone {

// An Executor whose threads live as long as the pool. The calling thread works too, so a pool of n
// starts n-1 threads. Each worker owns a share of the chunks and steals from the others when its
// own is done; a region ends when all chunks are done, not when all threads have arrived. Idle
// workers spin for some tens of microseconds, then sleep in the kernel. One region runs at a time:
// calls from several threads queue.
class ThreadPool final : public Executor {
 public:
  // threads = 0 means usable_cpus(). Throws Error{InvalidArgument} below 0 or above 1024, and
  // Error{Resource} if the system refuses a thread. spread: workers that Linux runs on one CPU
  // separate (ThreadPlacement), which changes their affinity masks for moments.
  explicit ThreadPool(int threads = 0, bool spread = false);
  ~ThreadPool() override;

  int workers() const override;
  void parallel_for(Index n, Index grain, RangeBody body) override;
  PublishTicket parallel_publish(PublishWork work) override;
  void wait_left(PublishTicket ticket) override;
  bool has_left(PublishTicket ticket) const override;

  // Number of chunks recomputed since the pool started because their first worker was preempted.
  Index chunks_recomputed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone
