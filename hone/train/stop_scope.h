// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "hone/core/machine/clock.h"

namespace hone {

// In this scope, check_stop() of any thread throws Error{Cancelled} from `grace_seconds` after the
// first call that finds `stop` true, so that work that takes less time still finishes. The
// innermost scope applies. A scope must begin and end in the same thread.
class StopScope {
 public:
  explicit StopScope(const std::stop_token& stop, double grace_seconds = 0.5,
                     const Clock& clock = steady_clock());
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope();

  void check();

 private:
  std::stop_token stop_;
  double grace_seconds_;
  const Clock& clock_;
  std::atomic<std::int64_t> seen_ns_{0};  // 0: `stop` was always false
  StopScope* outer_;
};

// Call it between pieces of long work, such as the matrix products of a training step. Without a
// scope, costs one load.
void check_stop();

}  // namespace hone
