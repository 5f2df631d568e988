// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "hone/core/check.h"

namespace hone::infer {

// A bounded queue between one producer thread and one consumer thread, without locks. It carries
// the events of one request: the engine pushes, the reader pops.
//
// room() never overstates: a producer that saw room for n events can push n.
template <class T>
class EventRing {
 public:
  explicit EventRing(Index capacity) : slots_(static_cast<std::size_t>(capacity)) {
    HONE_CHECK(capacity >= 1, "event ring", "a capacity of at least one event", capacity);
  }

  Index capacity() const { return static_cast<Index>(slots_.size()); }
  // Producer: the number of events that can be pushed.
  Index room() const {
    const std::size_t used =
        pushed_.load(std::memory_order_relaxed) - popped_.load(std::memory_order_acquire);
    return capacity() - static_cast<Index>(used);
  }
  // Producer: returns false, and leaves the value unchanged, if the ring is full.
  bool try_push(T&& value) {
    if (room() == 0) return false;
    const std::size_t end = pushed_.load(std::memory_order_relaxed);
    slots_[end % slots_.size()] = std::move(value);
    pushed_.store(end + 1, std::memory_order_release);
    return true;
  }
  // Consumer: the oldest event, if there is one.
  std::optional<T> try_pop() {
    const std::size_t begin = popped_.load(std::memory_order_relaxed);
    if (begin == pushed_.load(std::memory_order_acquire)) return std::nullopt;
    std::optional<T> value(std::move(slots_[begin % slots_.size()]));
    popped_.store(begin + 1, std::memory_order_release);
    return value;
  }

 private:
  std::vector<T> slots_;
  // Totals since the start, each written by one side.
  alignas(kCacheLine) std::atomic<std::size_t> pushed_{0};
  alignas(kCacheLine) std::atomic<std::size_t> popped_{0};
};

}  // namespace hone::infer
