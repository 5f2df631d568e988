// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "hone/core/executor.h"
#include "hone/kernels/gemm/packed_rows.h"

namespace hone::infer {

// Packed activations in rotation. A region returns when its chunks are committed, while a preempted
// worker may still read the region's input; so a buffer is packed again only after its last region
// was left. Eight regions later that is true in practice, and the wait costs nothing.
class ActivationRing {
 public:
  explicit ActivationRing(Executor& executor) : executor_(executor) {}
  ActivationRing(const ActivationRing&) = delete;
  ActivationRing& operator=(const ActivationRing&) = delete;
  ~ActivationRing() {
    for (const PublishTicket ticket : tickets_) executor_.wait_left(ticket);
  }

  // A buffer that nobody reads.
  kernels::PackedRows& next() {
    current_ = (current_ + 1) % kBuffers;
    executor_.wait_left(tickets_[current_]);
    tickets_[current_] = {};
    return buffers_[current_];
  }
  // The region that reads the buffer handed out last.
  void set_reader(PublishTicket ticket) { tickets_[current_] = ticket; }

 private:
  static constexpr std::size_t kBuffers = 8;

  Executor& executor_;
  std::array<kernels::PackedRows, kBuffers> buffers_;
  std::array<PublishTicket, kBuffers> tickets_{};
  std::size_t current_ = 0;
};

}  // namespace hone::infer
