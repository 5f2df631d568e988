// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "hone/core/executor.h"
#include "hone/kernels/gemm/packed_rows.h"

namespace hone::infer {

// A ring of buffers for packed activations. A parallel region returns once its chunks are
// committed, although a preempted worker may still be reading its input, so a buffer is reused only
// after all workers have left its last region. Eight regions later they practically always have, so
// the wait is free.
class ActivationRing {
 public:
  explicit ActivationRing(Executor& executor) : executor_(executor) {}
  ActivationRing(const ActivationRing&) = delete;
  ActivationRing& operator=(const ActivationRing&) = delete;
  ~ActivationRing() { wait_left(); }

  // A buffer that no worker is reading.
  kernels::PackedRows& next() {
    current_ = (current_ + 1) % kBuffers;
    executor_.wait_left(tickets_[current_]);
    tickets_[current_] = {};
    return buffers_[current_];
  }
  // Sets the region that reads the buffer last returned by next().
  void set_reader(PublishTicket ticket) { tickets_[current_] = ticket; }
  // Returns when no worker is left in any of the regions.
  void wait_left() {
    for (const PublishTicket ticket : tickets_) executor_.wait_left(ticket);
  }

 private:
  static constexpr std::size_t kBuffers = 8;

  Executor& executor_;
  std::array<kernels::PackedRows, kBuffers> buffers_;
  std::array<PublishTicket, kBuffers> tickets_{};
  std::size_t current_ = 0;
};

}  // namespace hone::infer
