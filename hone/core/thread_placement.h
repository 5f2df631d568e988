// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace hone {

// Keeps the workers of a pool on different CPUs if it has at least as many workers as CPUs. While
// another process keeps a CPU busy, Linux may run two workers on one of the others and does not
// separate them, because the CPUs would be no more evenly loaded: of two CPUs, the pool then has
// one instead of one and a half.
class ThreadPlacement {
 public:
  explicit ThreadPlacement(int workers);

  // Notes the CPU of the calling thread, worker `worker`. If the thread has come to the CPU where
  // another worker was last seen, or worker 0 has come to its CPU, moves it to one of its affinity
  // mask where no worker was, if there is one. The mask is the same afterwards, so Linux may move
  // the thread again. Worker 0, without which no region starts, is not moved, because it might get
  // little of the other CPU. May wait until the new CPU is free.
  void settle(int worker);
  // The worker sleeps, and takes no CPU until it calls settle() again.
  void leave(int worker);

 private:
  std::atomic<int>& cpu_of(int worker) { return cpus_[static_cast<std::size_t>(worker)]; }
  bool has_other(int cpu, int worker) const;
  void move_away(int worker);

  std::vector<std::atomic<int>> cpus_;  // where each worker was last seen, or -1
};

}  // namespace hone
