// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hone {

using TimeNs = std::int64_t;  // monotonic nanoseconds, as Clock::now_ns() returns them

// Monotonic nanoseconds. Code whose decisions depend on time takes a Clock, so that tests can
// script it. Workers of an Executor may read it at the same time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now_ns() const = 0;
};

const Clock& steady_clock();

inline double seconds_between(std::int64_t begin_ns, std::int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

}  // namespace hone
