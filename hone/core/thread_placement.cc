// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread_placement.h"

#include <sched.h>

namespace hone {

ThreadPlacement::ThreadPlacement(int workers) : cpus_(static_cast<std::size_t>(workers)) {
  for (std::atomic<int>& cpu : cpus_) cpu.store(-1, std::memory_order_relaxed);
}

bool ThreadPlacement::has_other(int cpu, int worker) const {
  for (std::size_t other = 0; other < cpus_.size(); ++other) {
    if (other == static_cast<std::size_t>(worker)) continue;
    if (cpus_[other].load(std::memory_order_relaxed) == cpu) return true;
  }
  return false;
}

void ThreadPlacement::settle(int worker) {
  const int cpu = ::sched_getcpu();
  if (cpu_of(worker).load(std::memory_order_relaxed) == cpu) return;
  cpu_of(worker).store(cpu, std::memory_order_relaxed);
  if (worker == 0 || !has_other(cpu, worker)) return;
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  cpu_set_t free = mask;
  for (const std::atomic<int>& taken : cpus_) {
    const int at = taken.load(std::memory_order_relaxed);
    if (at >= 0 && at < CPU_SETSIZE) CPU_CLR(static_cast<std::size_t>(at), &free);
  }
  if (CPU_COUNT(&free) == 0 || ::sched_setaffinity(0, sizeof free, &free) != 0) return;
  cpu_of(worker).store(::sched_getcpu(), std::memory_order_relaxed);
  ::sched_setaffinity(0, sizeof mask, &mask);
}

void ThreadPlacement::leave(int worker) { cpu_of(worker).store(-1, std::memory_order_relaxed); }

}  // namespace hone
