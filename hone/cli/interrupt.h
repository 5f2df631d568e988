// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace hone::cli {

// While it lives, the first Ctrl-C (SIGINT), SIGTERM or, unless it is ignored (nohup), SIGHUP only
// sets a flag that the job looks at; the second ends the process as usual. One at a time.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return flag().load(std::memory_order_relaxed); }
  static std::atomic<bool>& flag();
  // Of a job that ended for the flag: 128 + the signal's number; without a signal 130.
  static int exit_status();
};

}  // namespace hone::cli
