// SPDX-License-Identifier: Apache-2.0
#include "hone/core/batch/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone {
namespace {

constexpr TimeNs kMs = 1'000'000;

void complete_all(Batcher& batcher, TimeNs now) {
  while (batcher.next(now)) batcher.complete(true, now);
}

TEST(Batcher, a_lone_request_leaves_at_the_wait_exactly) {
  Batcher batcher({.max_wait_ns = 50 * kMs});
  batcher.submit(1, 0, 7 * kMs);
  EXPECT_EQ(batcher.next_timer(), 57 * kMs);
  EXPECT_FALSE(batcher.next(57 * kMs - 1).has_value());
  const auto batch = batcher.next(57 * kMs);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->rows, std::vector<RequestId>{1});
}

TEST(Batcher, arrivals_within_the_wait_share_a_batch_and_without_wait_they_do_not) {
  Batcher patient({.max_wait_ns = 50 * kMs});
  patient.submit(1, 0, 0);
  EXPECT_FALSE(patient.next(0).has_value());
  patient.submit(2, 0, 10 * kMs);
  EXPECT_FALSE(patient.next(10 * kMs).has_value());
  EXPECT_EQ(patient.next(50 * kMs)->rows, (std::vector<RequestId>{1, 2}));

  Batcher eager({.max_wait_ns = 0});
  eager.submit(1, 0, 0);
  EXPECT_EQ(eager.next(0)->rows, std::vector<RequestId>{1});
  eager.complete(true, 5 * kMs);
  eager.submit(2, 0, 10 * kMs);
  EXPECT_EQ(eager.next(10 * kMs)->rows, std::vector<RequestId>{2});
}

TEST(Batcher, without_wait_requests_gather_while_the_function_is_busy) {
  Batcher batcher({.max_batch = 3});
  batcher.submit(1, 0, 0);
  ASSERT_TRUE(batcher.next(0).has_value());
  for (RequestId id = 2; id <= 5; ++id) batcher.submit(id, 0, kMs);
  EXPECT_FALSE(batcher.next(kMs).has_value());
  batcher.complete(true, 2 * kMs);
  EXPECT_EQ(batcher.next(2 * kMs)->rows, (std::vector<RequestId>{2, 3, 4}));
}

TEST(Batcher, a_full_batch_does_not_wait) {
  Batcher batcher({.max_batch = 2, .max_wait_ns = 50 * kMs});
  batcher.submit(1, 0, 0);
  batcher.submit(2, 0, kMs);
  EXPECT_EQ(batcher.next(kMs)->rows.size(), 2u);
}

TEST(Batcher, a_full_queue_does_not_wait) {
  Batcher batcher({.max_wait_ns = 50 * kMs, .max_queue = 2});
  batcher.submit(1, 5, 0);
  batcher.submit(2, 3, kMs);
  EXPECT_EQ(batcher.next(kMs)->rows, std::vector<RequestId>{1});
  batcher.complete(true, 2 * kMs);
  EXPECT_FALSE(batcher.next(2 * kMs).has_value()) << "there is room again";
  EXPECT_EQ(batcher.next_timer(), 51 * kMs);
}

TEST(Batcher, only_equal_shapes_share_a_batch_and_the_oldest_goes_first) {
  Batcher batcher({.max_wait_ns = 10 * kMs});
  batcher.submit(1, 5, 0);
  batcher.submit(2, 3, kMs);
  batcher.submit(3, 5, 2 * kMs);
  const auto first = batcher.next(20 * kMs);
  EXPECT_EQ(first->shape, 5u);
  EXPECT_EQ(first->rows, (std::vector<RequestId>{1, 3}));
  batcher.complete(true, 21 * kMs);
  EXPECT_EQ(batcher.next(21 * kMs)->rows, std::vector<RequestId>{2});
}

TEST(Batcher, one_bad_row_fails_alone) {
  Batcher batcher({.max_batch = 3});
  for (const RequestId id : {1, 2, 3}) batcher.submit(id, 0, 0);
  ASSERT_EQ(batcher.next(0)->rows.size(), 3u);
  batcher.complete(false, kMs);
  EXPECT_TRUE(batcher.take_outcomes().empty());
  for (const RequestId id : {1, 2, 3}) {
    const auto row = batcher.next(kMs);
    ASSERT_TRUE(row.has_value());
    EXPECT_EQ(row->rows, std::vector<RequestId>{id});
    batcher.complete(id != 2, 2 * kMs);
  }
  std::map<RequestId, BatchOutcome::Kind> fate;
  for (const BatchOutcome& outcome : batcher.take_outcomes()) fate[outcome.id] = outcome.kind;
  EXPECT_EQ(fate[1], BatchOutcome::Kind::Finished);
  EXPECT_EQ(fate[2], BatchOutcome::Kind::Failed);
  EXPECT_EQ(fate[3], BatchOutcome::Kind::Finished);
}

// A function that takes 10 ms for a batch and 10 ms for each row.
TimeNs service(std::size_t rows) { return 10 * kMs + 10 * kMs * static_cast<TimeNs>(rows); }

void teach(Batcher& batcher, TimeNs& now) {
  for (RequestId id = 100; id < 160; ++id) {
    for (RequestId row = 0; row <= id % 4; ++row) batcher.submit(1000 * id + row, 0, now);
    now = std::max(now, *batcher.next_timer());
    const auto batch = batcher.next(now);
    ASSERT_EQ(batch->rows.size(), id % 4 + 1);
    now += service(batch->rows.size());
    batcher.complete(true, now);
  }
  batcher.take_outcomes();
}

TEST(Batcher, refuses_what_cannot_meet_the_latency_limit) {
  Batcher batcher({.max_batch = 4, .latency_limit_ns = 100 * kMs});
  TimeNs now = 0;
  teach(batcher, now);
  for (RequestId id = 1; id <= 4; ++id) EXPECT_FALSE(batcher.submit(id, 0, now)) << id;
  const auto batch = batcher.next(now);  // takes 50 ms
  ASSERT_EQ(batch->rows.size(), 4u);
  EXPECT_FALSE(batcher.submit(5, 0, now));  // done after 70 ms
  EXPECT_FALSE(batcher.submit(6, 0, now + 5 * kMs));
  EXPECT_FALSE(batcher.submit(7, 0, now + 5 * kMs));
  EXPECT_EQ(batcher.submit(8, 0, now + 5 * kMs), BatchRefusal::LatencyLimit);
}

TEST(Batcher, one_slow_batch_does_not_shut_out_its_shape) {
  Batcher batcher({.max_batch = 4, .latency_limit_ns = 50 * kMs});
  TimeNs now = 0;
  int refused = 0;
  for (RequestId id = 1; id <= 20; ++id, now += 1000 * kMs) {
    if (batcher.submit(id, 7, now)) ++refused;
    const bool runs = batcher.next(now).has_value();
    batcher.cancel(1000);  // somebody else's
    if (runs) batcher.complete(true, now + (id == 1 ? 200 : 49) * kMs);
  }
  EXPECT_EQ(refused, 1);
}

TEST(Batcher, a_shape_that_is_always_slow_is_tried_more_and_more_rarely) {
  Batcher batcher({.max_batch = 4, .latency_limit_ns = 50 * kMs});
  TimeNs now = 0;
  int accepted = 0;
  for (RequestId id = 1; id <= 200; ++id, now += 1000 * kMs) {
    if (!batcher.submit(id, 7, now)) ++accepted;
    if (batcher.next(now)) batcher.complete(true, now + 200 * kMs);
    batcher.take_outcomes();
  }
  EXPECT_EQ(accepted, 1 + 7) << "after 1, 2, 4, 8, 16, 32 and 64 refusals";
}

TEST(Batcher, the_latency_limit_shortens_waits_and_batches) {
  Batcher batcher({.max_batch = 4, .max_wait_ns = 500 * kMs, .latency_limit_ns = 100 * kMs});
  TimeNs now = 0;
  teach(batcher, now);
  batcher.submit(1, 0, now);
  // Half of 100 ms less the 20 ms that it will take: the caller may come late.
  EXPECT_NEAR(static_cast<double>(*batcher.next_timer() - now), 40e6, 1e6);
  batcher.submit(2, 0, now + 60 * kMs);
  batcher.submit(3, 0, now + 60 * kMs);
  // With 75 ms waited, 25 ms are left: one row.
  EXPECT_EQ(batcher.next(now + 75 * kMs)->rows, std::vector<RequestId>{1});
  batcher.complete(true, now + 95 * kMs);
  // 101 ms after its arrival a request is refused instead of served late.
  EXPECT_FALSE(batcher.next(now + 161 * kMs).has_value());
  Index refused = 0;
  for (const BatchOutcome& outcome : batcher.take_outcomes()) {
    refused += outcome.kind == BatchOutcome::Kind::Refused;
  }
  EXPECT_EQ(refused, 2);
}

// A caller that always wakes up a little after the time that it was told.
TEST(Batcher, a_late_caller_keeps_the_latency_limit) {
  for (const std::int64_t limit : {1 * kMs, 5 * kMs, 100 * kMs}) {
    Batcher batcher({.max_batch = 4, .max_wait_ns = 1000 * kMs, .latency_limit_ns = limit});
    TimeNs now = 0;
    for (RequestId id = 0; id < 50; ++id) {
      EXPECT_FALSE(batcher.submit(id, 0, now)) << limit << " " << id;
      now = *batcher.next_timer() + kMs / 5;
      ASSERT_TRUE(batcher.next(now).has_value()) << limit << " " << id;
      now += kMs / 20;
      batcher.complete(true, now);
    }
    EXPECT_EQ(batcher.counters().finished, 50);
  }
}

TEST(Batcher, cancels_all_that_waits_at_once) {
  Batcher batcher({.max_batch = 2, .max_wait_ns = 50 * kMs});
  for (RequestId id = 0; id < 5; ++id) batcher.submit(id, static_cast<std::uint64_t>(id % 2), 0);
  EXPECT_EQ(batcher.next(0)->rows, (std::vector<RequestId>{0, 2}));
  EXPECT_THAT(batcher.cancel_waiting(), testing::UnorderedElementsAre(1, 3, 4));
  EXPECT_FALSE(batcher.cancel(3)) << "it waits no more";
  EXPECT_FALSE(batcher.cancel(0)) << "it runs";
  batcher.complete(true, kMs);
  EXPECT_EQ(batcher.counters().cancelled, 3);
  EXPECT_EQ(batcher.counters().finished, 2);
  EXPECT_EQ(batcher.counters().waiting + batcher.counters().running, 0);
  EXPECT_FALSE(batcher.next_timer());
}

TEST(Batcher, cancels_waiting_requests_and_bounds_the_queue) {
  Batcher batcher({.max_wait_ns = 50 * kMs, .max_queue = 2});
  batcher.submit(1, 0, 0);
  batcher.submit(2, 9, 0);
  EXPECT_EQ(batcher.submit(3, 0, 0), BatchRefusal::QueueFull);
  batcher.cancel(2);
  batcher.cancel(77);
  EXPECT_FALSE(batcher.submit(4, 0, 0));
  EXPECT_EQ(batcher.next(50 * kMs)->rows, (std::vector<RequestId>{1, 4}));
}

TEST(Batcher, random_events_lose_nobody_and_keep_every_promise) {
  PhiloxStream random(11);
  const BatcherOptions options{.max_batch = 4, .max_wait_ns = 20 * kMs, .max_queue = 12};
  Batcher batcher(options);
  TimeNs now = 0;
  std::map<RequestId, TimeNs> waiting;
  std::map<RequestId, std::uint64_t> shape_of;
  std::optional<Batch> running;
  std::set<RequestId> open;  // without an outcome
  for (RequestId id = 1; id < 20'000; ++id) {
    now += random.below(8) * kMs;
    const std::uint64_t shape = random.below(3);
    if (!batcher.submit(id, shape, now)) {
      open.insert(id);
      waiting[id] = now;
      shape_of[id] = shape;
    }
    if (random.below(20) == 0 && !waiting.empty()) {
      batcher.cancel(waiting.begin()->first);
      open.erase(waiting.begin()->first);
      waiting.erase(waiting.begin());
    }
    if (running && random.below(2) == 0) {
      batcher.complete(random.below(5) != 0, now);
      running.reset();
    }
    if (!running) running = batcher.next(now);
    if (running) {
      EXPECT_LE(std::ssize(running->rows), options.max_batch);
      for (const RequestId row : running->rows) {
        EXPECT_EQ(shape_of.at(row), running->shape);
        waiting.erase(row);
      }
    } else {
      for (const auto& [other, arrived] : waiting) EXPECT_LT(now - arrived, options.max_wait_ns);
    }
    const BatcherCounters& c = batcher.counters();
    ASSERT_EQ(c.submitted, c.finished + c.failed + c.refused + c.cancelled + c.running + c.waiting);
    ASSERT_EQ(c.waiting, std::ssize(waiting));
    for (const BatchOutcome& outcome : batcher.take_outcomes()) {
      ASSERT_EQ(open.erase(outcome.id), 1u) << outcome.id;
    }
    ASSERT_EQ(std::ssize(open), c.running + c.waiting);
  }
  EXPECT_GT(batcher.counters().finished, 0);
  EXPECT_GT(batcher.counters().failed, 0);
}

TEST(Batcher, is_not_slowed_down_by_a_hundred_thousand_shapes) {
  Batcher batcher({});
  for (RequestId id = 1; id <= 100'000; ++id) {
    batcher.submit(id, id, 0);
    complete_all(batcher, 0);
  }
  EXPECT_EQ(batcher.counters().finished, 100'000);
  EXPECT_THROW(batcher.complete(true, 0), Error);
}

}  // namespace
}  // namespace hone
