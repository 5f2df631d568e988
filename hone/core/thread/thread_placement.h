// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace hone {

// When the pool has one worker per allowed CPU, keeps the workers on different CPUs. While another
// process keeps a CPU busy, Linux may run two workers on one of the other CPUs. It does not
// separate them, because that would not balance the load: of two CPUs, the pool then has one
// instead of one and a half.
class ThreadPlacement {
 public:
  explicit ThreadPlacement(int workers);

  // Records the CPU of the calling thread. Each worker except worker 0 must always call from the
  // same thread. If another worker was last seen on this CPU, or if worker 0 has come to this CPU,
  // moves the thread to an allowed CPU where no worker was seen. Then restores the affinity mask,
  // so Linux may move the thread again. Never moves worker 0: no region starts without it, and it
  // might get little time on the other CPU.
  void settle(int worker);
  // Marks the worker as asleep. It takes no CPU until it calls settle() again.
  void leave(int worker);

 private:
  struct Place {
    std::atomic<int> cpu{-1};  // where the worker was last seen, or -1
    // Set by move_away(); read by the thread that restores the mask.
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
  std::atomic<bool> moving_{false};  // true while any place is moving
};

}  // namespace hone
