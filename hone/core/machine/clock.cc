// SPDX-License-Identifier: Apache-2.0
#include "hone/core/machine/clock.h"

#include <chrono>

namespace hone {
namespace {

class SteadyClock final : public Clock {
 public:
  std::int64_t now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace hone
