// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "hone/core/executor.h"
#include "hone/core/index.h"

namespace hone::infer {

// A ring of buffers T for the inputs of parallel regions. A region returns once its chunks are
// committed, although a preempted worker may still be reading its input, so a buffer is reused only
// after all workers have left its last region. For few rows, whose regions are short, that is eight
// regions later, when they practically always have, so that the wait is free. Regions of many rows
// take as long as a preemption, so two large buffers suffice.
template <class T>
class ActivationRing {
 public:
  explicit ActivationRing(Executor& executor) : executor_(executor) {}
  ActivationRing(const ActivationRing&) = delete;
  ActivationRing& operator=(const ActivationRing&) = delete;
  ~ActivationRing() { wait_left(); }

  // A buffer for `rows` rows that no worker is reading.
  T& next(Index rows) {
    if (rows <= kFewRows) {
      few_ = (few_ + 1) % kFewBuffers;
      current_ = few_;
    } else {
      many_ = (many_ + 1) % kManyBuffers;
      current_ = kFewBuffers + many_;
    }
    executor_.wait_left(tickets_[current_]);
    tickets_[current_] = {};
    return buffers_[current_];
  }
  // Sets the region that reads the buffer last returned by next().
  void set_reader(PublishTicket ticket) { tickets_[current_] = ticket; }
  // Returns when no worker is reading any of the buffers.
  void wait_left() {
    for (PublishTicket& ticket : tickets_) {
      executor_.wait_left(ticket);
      ticket = {};
    }
  }

 private:
  static constexpr Index kFewRows = 16;
  static constexpr std::size_t kFewBuffers = 8, kManyBuffers = 2;

  Executor& executor_;
  std::array<T, kFewBuffers + kManyBuffers> buffers_;
  std::array<PublishTicket, kFewBuffers + kManyBuffers> tickets_{};
  std::size_t few_ = 0, many_ = 0, current_ = 0;
};

}  // namespace hone::infer
