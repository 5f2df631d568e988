// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "hone/core/executor.h"

namespace hone::infer {

// Buffers T for the inputs of parallel regions. A region returns once its chunks are committed,
// although a preempted worker may still be reading its input, so a buffer is reused only after all
// workers have left its last region. A worker is inside one region at a time: with a buffer for
// each, one is always free, and mostly it is the first, which is still in the caches.
template <class T>
class ActivationBuffers {
 public:
  explicit ActivationBuffers(Executor& executor)
      : executor_(executor),
        slots_(static_cast<std::size_t>(std::min(executor.workers(), kMostBuffers))) {}
  ActivationBuffers(const ActivationBuffers&) = delete;
  ActivationBuffers& operator=(const ActivationBuffers&) = delete;
  ~ActivationBuffers() { wait_left(); }

  // A buffer that no worker is reading.
  T& next() {
    const auto is_free = [&](const Slot& slot) { return executor_.has_left(slot.reader); };
    auto found = std::ranges::find_if(slots_, is_free);
    if (found == slots_.end()) {
      found = slots_.begin() + (current_ + 1) % std::ssize(slots_);
      executor_.wait_left(found->reader);
    }
    current_ = found - slots_.begin();
    found->reader = {};
    return found->buffer;
  }
  // Sets the region that reads the buffer last returned by next().
  void set_reader(PublishTicket ticket) {
    slots_[static_cast<std::size_t>(current_)].reader = ticket;
  }
  // Returns when no worker is reading any of the buffers.
  void wait_left() {
    for (Slot& slot : slots_) {
      executor_.wait_left(slot.reader);
      slot.reader = {};
    }
  }

 private:
  // Large machines wait rather than keep a buffer for each worker.
  static constexpr int kMostBuffers = 8;
  struct Slot {
    T buffer;
    PublishTicket reader;
  };

  Executor& executor_;
  std::vector<Slot> slots_;
  std::ptrdiff_t current_ = 0;
};

}  // namespace hone::infer
