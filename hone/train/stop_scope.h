// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <stop_token>

#include "hone/core/machine/clock.h"

namespace hone {

// While it exists, check_stop() of any thread throws Error{Cancelled} from `grace_seconds` after
// the first call that finds `stop` true: work that ends sooner is finished. Of nested scopes, the
// innermost one counts. Scopes begin and end in one thread.
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
  std::atomic<std::int64_t> seen_ns_{0};  // 0: `stop` was false so far
  StopScope* outer_;
};

// Called between pieces of long work, such as the matrix products of a training step. Costs a load
// without a scope.
void check_stop();

}  // namespace hone
