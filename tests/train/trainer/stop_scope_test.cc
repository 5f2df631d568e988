// SPDX-License-Identifier: Apache-2.0
#include "hone/train/stop_scope.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/stop_flag.h"

namespace hone {
namespace {

class ManualClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now; }
  std::int64_t now = 1;
};

bool stops() {
  return !test::refusal([] { check_stop(); }, ErrorCategory::Cancelled).empty();
}

TEST(StopScope, throws_once_the_grace_since_the_request_is_over) {
  hone::test::StopFlag stop{false};
  ManualClock clock;
  const StopScope scope(stop, 0.5, clock);
  clock.now += 5'000'000'000;
  EXPECT_FALSE(stops());
  stop = true;
  EXPECT_FALSE(stops()) << "seen for the first time";
  clock.now += 400'000'000;
  EXPECT_FALSE(stops());
  clock.now += 100'000'000;
  EXPECT_TRUE(stops());
}

TEST(StopScope, counts_while_it_exists_and_the_innermost_one_only) {
  EXPECT_FALSE(stops()) << "without a scope";
  const hone::test::StopFlag yes{true}, no{false};
  const StopScope outer(yes, 0);
  EXPECT_TRUE(stops());
  {
    const StopScope inner(no, 0);
    EXPECT_FALSE(stops());
  }
  EXPECT_TRUE(stops());
}

}  // namespace
}  // namespace hone
