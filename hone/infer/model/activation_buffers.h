// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/thread/executor.h"

namespace hone::infer {

// Buffers T for the inputs of parallel regions. A region returns once its chunks are committed,
// although a preempted worker may still be reading its input. A buffer is therefore reused only
// after all workers have left its last region.
// A worker is inside one region at a time. With one buffer per worker, one buffer is thus always
// free, and mostly it is the first, which is still in the caches. On machines with many workers,
// only a few buffers are kept. For many rows, only two are used, because they take much memory and
// their regions take longer than a preemption.
template <class T>
class ActivationBuffers {
 public:
  explicit ActivationBuffers(Executor& executor)
      : executor_(executor),
        slots_(static_cast<std::size_t>(std::min(executor.workers(), kMostBuffers))) {}
  ActivationBuffers(const ActivationBuffers&) = delete;
  ActivationBuffers& operator=(const ActivationBuffers&) = delete;
  ~ActivationBuffers() { wait_left(); }

  // A buffer for `rows` rows that no worker is reading. It counts as free until set_reader().
  T& next(Index rows) {
    const Index kept = std::ssize(slots_);
    const Index usable = rows <= kFewRows ? kept : std::min(kept, kMostLarge);
    Index found = 0;
    while (found < usable && !executor_.has_left(slots_[at(found)].reader)) ++found;
    if (found == usable) {
      found = (current_ + 1) % usable;
      executor_.wait_left(slots_[at(found)].reader);
    }
    current_ = found;
    slots_[at(current_)].reader = {};
    return slots_[at(current_)].buffer;
  }
  // Sets the region that reads the buffer last returned by next().
  void set_reader(PublishTicket ticket) { slots_[at(current_)].reader = ticket; }
  // Returns when no worker is reading any of the buffers.
  void wait_left() {
    for (Slot& slot : slots_) {
      executor_.wait_left(slot.reader);
      slot.reader = {};
    }
  }

 private:
  static constexpr Index kFewRows = 16;
  static constexpr Index kMostLarge = 2;
  static constexpr int kMostBuffers = 8;
  struct Slot {
    T buffer;
    PublishTicket reader;
  };
  static std::size_t at(Index index) { return static_cast<std::size_t>(index); }

  Executor& executor_;
  std::vector<Slot> slots_;
  Index current_ = 0;
};

}  // namespace hone::infer
