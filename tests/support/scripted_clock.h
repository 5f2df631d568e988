// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "hone/core/machine/clock.h"

namespace hone::test {

// A clock that advances only on request.
class ScriptedClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now_ns_; }
  void advance(double seconds) { now_ns_ += std::llround(seconds * 1e9); }

 private:
  std::int64_t now_ns_ = 1'000'000'000;
};

}  // namespace hone::test
