// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>

namespace hone::cli {

// While it exists, the first Ctrl-C (SIGINT), SIGTERM or, unless ignored (nohup), SIGHUP requests
// the stop that the job checks; the second one ends the process as usual. Only one may exist at a
// time.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  static bool requested();
  static std::stop_token token();
  // As a signal does.
  static void request();
  // The first signal; 0 without one.
  static int signal();
  // The exit status of a job that ended because of the stop: 128 + the signal's number, or 130
  // without a signal.
  static int exit_status();
};

}  // namespace hone::cli
