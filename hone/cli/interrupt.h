// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace hone::cli {

// While it lives, the first Ctrl-C (SIGINT) or SIGTERM only sets a flag that the job looks at; the
// second ends the process as usual. One at a time.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return flag().load(std::memory_order_relaxed); }
  static std::atomic<bool>& flag();
};

}  // namespace hone::cli
