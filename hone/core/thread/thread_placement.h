// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace hone {

// Keeps the workers of a pool on different CPUs if it has as many as their affinity masks. While
// another process keeps a CPU busy, Linux may run two workers on one of the others and does not
// separate them, because the CPUs would be no more evenly loaded: of two CPUs, the pool then has
// one instead of one and a half.
class ThreadPlacement {
 public:
  explicit ThreadPlacement(int workers);

  // Notes the CPU of the calling thread, worker `worker`; the thread of each worker but 0 stays the
  // same. If the thread has come to the CPU where another worker was last seen, or worker 0 has
  // come to its CPU, moves it to one of its affinity mask where no worker was. Afterwards the mask
  // is the same, so Linux may move the thread again. Worker 0, without which no region starts, is
  // not moved, because it might get little of the other CPU.
  void settle(int worker);
  // The worker sleeps, and takes no CPU until it calls settle() again.
  void leave(int worker);

 private:
  struct Place {
    std::atomic<int> cpu{-1};  // where the worker was last seen, or -1
    // What move_away() leaves to others.
    std::mutex mutex;
    std::atomic<bool> moving{false};
    pid_t thread = 0;
    cpu_set_t mask{}, narrow{};
  };
  Place& at(int worker) { return places_[static_cast<std::size_t>(worker)]; }
  bool shares_cpu(const Place& place) const;
  void move_away(Place& place);
  static void widen(const Place& place);
  void widen_all();

  std::vector<Place> places_;
  std::atomic<bool> moving_{false};  // one of them is
};

}  // namespace hone
