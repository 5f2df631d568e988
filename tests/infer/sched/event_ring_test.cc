// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/event_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

TEST(EventRing, takes_as_many_events_as_it_has_room) {
  EventRing<std::string> ring(3);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(ring.room(), 3 - i);
      EXPECT_TRUE(ring.try_push(std::to_string(i)));
    }
    std::string refused = "kept";
    EXPECT_FALSE(ring.try_push(std::move(refused)));
    EXPECT_EQ(refused, "kept");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ring.try_pop(), std::to_string(i));
    EXPECT_FALSE(ring.try_pop().has_value());
  }
  EXPECT_THROW(EventRing<int>(0), Error);
}

TEST(EventRing, one_producer_and_one_consumer_lose_and_reorder_nothing) {
  EventRing<std::unique_ptr<int>> ring(7);
  constexpr int kEvents = 20'000;
  std::jthread producer([&ring] {
    for (int i = 0; i < kEvents;) {
      // Room never overstates, so that the engine can reserve slots.
      for (Index room = ring.room(); room > 0 && i < kEvents; --room, ++i) {
        EXPECT_TRUE(ring.try_push(std::make_unique<int>(i)));
      }
      std::this_thread::yield();
    }
  });
  for (int expected = 0; expected < kEvents;) {
    if (const auto event = ring.try_pop()) {
      ASSERT_EQ(**event, expected);
      ++expected;
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace
}  // namespace hone::infer
