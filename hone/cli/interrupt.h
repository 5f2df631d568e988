// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace hone::cli {

// While it exists, the first Ctrl-C (SIGINT), SIGTERM or, unless ignored (nohup), SIGHUP only sets
// a flag that the job checks; the second one ends the process as usual. Only one may exist at a
// time.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return flag().load(std::memory_order_relaxed); }
  static std::atomic<bool>& flag();
  // The exit status of a job that ended because of the flag: 128 + the signal's number, or 130
  // without a signal.
  static int exit_status();
};

}  // namespace hone::cli
