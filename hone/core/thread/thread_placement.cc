// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread/thread_placement.h"

#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace hone {
namespace {

bool get_mask(pid_t thread, cpu_set_t& mask) {
  return ::sched_getaffinity(thread, sizeof mask, &mask) == 0;
}
bool set_mask(pid_t thread, const cpu_set_t& mask) {
  return ::sched_setaffinity(thread, sizeof mask, &mask) == 0;
}
bool has_mask(pid_t thread, const cpu_set_t& mask) {
  cpu_set_t now;
  return get_mask(thread, now) && CPU_EQUAL(&now, &mask);
}

}  // namespace

ThreadPlacement::ThreadPlacement(int workers) : places_(static_cast<std::size_t>(workers)) {}

bool ThreadPlacement::shares_cpu(const Place& place) const {
  const int cpu = place.cpu.load(std::memory_order_relaxed);
  for (const Place& other : places_) {
    if (&other != &place && other.cpu.load(std::memory_order_relaxed) == cpu) return true;
  }
  return false;
}

void ThreadPlacement::settle(int worker) {
  Place& own = at(worker);
  const int cpu = ::sched_getcpu();
  const bool stayed = own.cpu.load(std::memory_order_relaxed) == cpu;
  if (!stayed) own.cpu.store(cpu, std::memory_order_relaxed);
  if (worker == 0) {
    if (moving_.load(std::memory_order_relaxed)) widen_all();
    return;
  }
  if (stayed && at(0).cpu.load(std::memory_order_relaxed) != cpu) return;
  if (shares_cpu(own)) move_away(own);
}

// Narrows the thread's mask so that Linux moves it. It may then wait for its new CPU for
// milliseconds, so that worker 0 widens the mask if it comes first.
void ThreadPlacement::move_away(Place& place) {
  {
    const std::lock_guard lock(place.mutex);
    if (place.thread == 0) place.thread = ::gettid();
    if (!get_mask(0, place.mask)) return;
    // With more CPUs, Linux itself finds an idle one, and a better one; with fewer, none is free.
    if (static_cast<std::size_t>(CPU_COUNT(&place.mask)) != places_.size()) return;
    place.narrow = place.mask;
    for (const Place& taken : places_) {
      const int cpu = taken.cpu.load(std::memory_order_relaxed);
      if (cpu >= 0) CPU_CLR(static_cast<std::size_t>(cpu), &place.narrow);
    }
    place.moving.store(true, std::memory_order_relaxed);
  }
  moving_.store(true, std::memory_order_relaxed);
  if (set_mask(0, place.narrow)) place.cpu.store(::sched_getcpu(), std::memory_order_relaxed);
  widen(place);
  place.moving.store(false, std::memory_order_relaxed);
}

// Gives a thread its mask again, unless somebody else has set one meanwhile. Linux remembers a mask
// that was set, and does not let the thread run on CPUs that a container gets later, so all CPUs
// are set, unless a smaller mask had been set before.
void ThreadPlacement::widen(const Place& place) {
  if (!has_mask(place.thread, place.narrow)) return;
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  if (!set_mask(place.thread, all) || !has_mask(place.thread, place.mask)) {
    set_mask(place.thread, place.mask);
  }
}

void ThreadPlacement::widen_all() {
  moving_.store(false, std::memory_order_relaxed);
  for (Place& place : places_) {
    const std::unique_lock lock(place.mutex, std::try_to_lock);
    if (lock.owns_lock() && place.moving.load(std::memory_order_relaxed)) widen(place);
  }
}

void ThreadPlacement::leave(int worker) { at(worker).cpu.store(-1, std::memory_order_relaxed); }

}  // namespace hone
