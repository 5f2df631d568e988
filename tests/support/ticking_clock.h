// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

#include "hone/core/machine/clock.h"

namespace hone::test {

// A clock that advances whenever somebody looks at it.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(double seconds) : tick_ns_(std::llround(seconds * 1e9)) {}
  std::int64_t now_ns() const override { return now_ns_ += tick_ns_; }

 private:
  std::int64_t tick_ns_;
  mutable std::atomic<std::int64_t> now_ns_{0};
};

}  // namespace hone::test
