// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread_placement.h"

#include <sched.h>

#include <cstring>

namespace hone {
namespace {

bool get_mask(cpu_set_t& mask) { return ::sched_getaffinity(0, sizeof mask, &mask) == 0; }
bool set_mask(const cpu_set_t& mask) { return ::sched_setaffinity(0, sizeof mask, &mask) == 0; }

// Linux remembers a mask that was set, and does not let the thread run on CPUs that a container
// gets later. So all CPUs are set, unless a smaller mask had been set before.
void restore_mask(const cpu_set_t& mask) {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  cpu_set_t now;
  if (set_mask(all) && get_mask(now) && CPU_EQUAL(&now, &mask)) return;
  set_mask(mask);
}

}  // namespace

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
  const bool stayed = cpu_of(worker).load(std::memory_order_relaxed) == cpu;
  if (stayed && (worker == 0 || cpu_of(0).load(std::memory_order_relaxed) != cpu)) return;
  cpu_of(worker).store(cpu, std::memory_order_relaxed);
  if (worker != 0 && has_other(cpu, worker)) move_away(worker);
}

void ThreadPlacement::move_away(int worker) {
  cpu_set_t mask;
  // With more CPUs than workers, Linux itself finds an idle one, and a better one.
  if (!get_mask(mask) || static_cast<std::size_t>(CPU_COUNT(&mask)) > cpus_.size()) return;
  cpu_set_t free = mask;
  for (const std::atomic<int>& taken : cpus_) {
    const int at = taken.load(std::memory_order_relaxed);
    if (at >= 0) CPU_CLR(static_cast<std::size_t>(at), &free);
  }
  if (CPU_COUNT(&free) == 0 || !set_mask(free)) return;
  cpu_of(worker).store(::sched_getcpu(), std::memory_order_relaxed);
  // While the thread waited for the CPU, somebody may have set another mask.
  cpu_set_t now;
  if (get_mask(now) && CPU_EQUAL(&now, &free)) restore_mask(mask);
}

void ThreadPlacement::leave(int worker) { cpu_of(worker).store(-1, std::memory_order_relaxed); }

}  // namespace hone
