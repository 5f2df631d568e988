// SPDX-License-Identifier: Apache-2.0
// Priorities, deadlines and tenants of requests, and what becomes of them when something fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tests/infer/engine_fixture.h"
#include "tests/support/scripted_clock.h"
#include "tests/support/test_data.h"
#include "tests/support/watched_executor.h"

namespace hone::infer {
namespace {

using hone::test::ScriptedClock;
using test::CollectSink;
using test::open_stories;

// Fails on request.
class FailingClock final : public Clock {
 public:
  std::int64_t now_ns() const override {
    if (calls_left > 0 && --calls_left == 0) throw std::runtime_error("the clock has stopped");
    return 1'000'000'000;
  }
  mutable int calls_left = 0;
};

// Takes `most` events in all.
class SlowSink final : public infer::CollectSink {
 public:
  SlowSink() : infer::CollectSink([this](const Event&) { return std::ssize(events) < most; }) {}
  std::ptrdiff_t most = 0;
};

class RequestOptions : public testing::Test {
 protected:
  void SetUp() override {
    HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
    model_ = model;
  }
  std::shared_ptr<CollectSink> submit(Engine& engine, Request request) {
    auto sink = std::make_shared<CollectSink>();
    last_id_ = engine.submit(std::move(request), sink);
    return sink;
  }
  static std::vector<TokenId> prompt(Index length, TokenId first = 300) {
    std::vector<TokenId> ids{1};
    for (Index i = 1; i < length; ++i) ids.push_back(first + static_cast<TokenId>(i % 100));
    return ids;
  }

  std::filesystem::path model_;
  RequestId last_id_ = 0;
};

TEST_F(RequestOptions, tenants_take_no_token_from_each_other_under_load) {
  for (const bool is_shared : {true, false}) {
    const auto engine = open_stories(model_, {.prefill_chunk = 64, .max_sequences = 4});
    std::vector<std::shared_ptr<CollectSink>> sinks;
    for (std::uint64_t tenant = 1; tenant <= 12; ++tenant) {
      Request request = test::greedy(prompt(150), 8);
      request.salt = is_shared ? tenant % 2 : tenant;
      sinks.push_back(submit(*engine, std::move(request)));
    }
    while (!std::ranges::all_of(sinks, &CollectSink::is_finished)) engine->step();
    for (const auto& sink : sinks) EXPECT_EQ(sink->tokens, sinks.front()->tokens);
    // 149 tokens can be shared: 4 blocks of 32. Each tenant computes them once.
    EXPECT_EQ(engine->stats().cached_tokens, is_shared ? 10 * 128 : 0);
  }
}

TEST_F(RequestOptions, the_higher_class_runs_first_and_equal_ones_in_order) {
  const auto engine = open_stories(model_, {.max_sequences = 1});
  std::vector<std::pair<Priority, std::shared_ptr<CollectSink>>> requests;
  for (const Priority priority :
       {Priority::Low, Priority::Normal, Priority::High, Priority::Normal, Priority::High}) {
    Request request = test::greedy(prompt(5), 3);
    request.priority = priority;
    requests.emplace_back(priority, submit(*engine, std::move(request)));
  }
  std::vector<int> order;
  while (order.size() < requests.size()) {
    engine->step();
    for (int i = 0; i < 5; ++i) {
      const bool is_new = std::ranges::find(order, i) == order.end();
      if (is_new && requests[static_cast<std::size_t>(i)].second->is_finished()) order.push_back(i);
    }
  }
  EXPECT_EQ(order, (std::vector<int>{2, 4, 1, 3, 0}));
}

TEST_F(RequestOptions, a_deadline_before_the_first_token_fails_by_name_and_later_cancels) {
  ScriptedClock clock;
  const auto engine = open_stories(model_, {.clock = &clock, .max_sequences = 1});
  Request request = test::greedy(prompt(5), 400);
  request.timeout_s = 2;
  const auto running = submit(*engine, request);
  const auto waiting = submit(*engine, request);
  request.timeout_s = 0;
  const auto patient = submit(*engine, request);
  for (int i = 0; i < 10; ++i) engine->step();
  clock.advance(1.9);
  engine->step();
  EXPECT_FALSE(running->is_finished() || waiting->is_finished());
  clock.advance(0.2);
  engine->step();
  ASSERT_TRUE(running->is_finished() && waiting->is_finished());
  EXPECT_EQ(running->last().finished, FinishReason::Cancelled);
  EXPECT_EQ(running->tokens.size(), 11u);
  EXPECT_EQ(waiting->last().finished, FinishReason::Failed);
  EXPECT_EQ(waiting->last().refusal, Refusal::DeadlinePassed);
  EXPECT_EQ(waiting->last().error_category, ErrorCategory::Resource);
  EXPECT_TRUE(waiting->tokens.empty());
  while (!patient->is_finished()) engine->step();
  EXPECT_EQ(patient->tokens.size(), 400u);
  EXPECT_EQ(engine->stats().cancelled, 1);
  EXPECT_EQ(engine->stats().failed, 1);
}

TEST_F(RequestOptions, a_deadline_that_passes_before_the_engine_takes_the_request_refuses_it) {
  ScriptedClock clock;
  const auto engine = open_stories(model_, {.clock = &clock});
  Request request = test::greedy(prompt(5), 4);
  request.timeout_s = 1;
  const auto late = submit(*engine, request);
  clock.advance(1);
  engine->step();
  ASSERT_TRUE(late->is_finished());
  EXPECT_EQ(late->last().refusal, Refusal::DeadlinePassed);
  for (const double bad : {-1.0, 2e9, std::numeric_limits<double>::quiet_NaN()}) {
    request.timeout_s = bad;
    EXPECT_THROW(submit(*engine, request), Error);
  }
}

TEST_F(RequestOptions, cancelling_and_deadlines_end_a_step_between_layers) {
  ScriptedClock clock;
  hone::test::WatchedExecutor executor;
  const auto engine = open_stories(model_, {.executor = &executor, .clock = &clock});
  Request request = test::greedy(prompt(300), 4);
  request.timeout_s = 10;
  const int idle = executor.regions;
  auto sink = submit(*engine, request);
  engine->step();
  const int whole = executor.regions - idle;  // five layers and the logits
  while (!sink->is_finished()) engine->step();
  for (const bool is_cancel : {true, false}) {
    request.salt += 1;  // nothing is cached for it
    sink = submit(*engine, request);
    const int before = executor.regions;
    executor.before = [&](int region) {
      if (region != before + 2) return;
      if (is_cancel) engine->cancel(last_id_);
      if (!is_cancel) clock.advance(11);
    };
    engine->step();
    EXPECT_LE(executor.regions - before, 2 + whole / 4);
    engine->step();
    ASSERT_TRUE(sink->is_finished());
    EXPECT_EQ(sink->last().finished, is_cancel ? FinishReason::Cancelled : FinishReason::Failed);
    executor.before = {};
  }
}

TEST_F(RequestOptions, a_full_queue_refuses_by_name) {
  const auto engine = open_stories(model_, {.max_queue = 1});
  submit(*engine, test::greedy(prompt(5), 4));
  try {
    submit(*engine, test::greedy(prompt(5), 4));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Resource);
    EXPECT_NE(std::string_view(error.what()).find("queue_full"), std::string_view::npos);
  }
}

// Such a request was never told about, and the engine does not keep it for ever.
TEST_F(RequestOptions, what_a_sink_does_not_take_is_dropped_after_the_stall_time) {
  ScriptedClock clock;
  const auto engine = open_stories(model_, {.clock = &clock});
  constexpr int kForEver = 1 << 30;
  auto cancelled = std::make_shared<CollectSink>(), ended = std::make_shared<CollectSink>();
  for (const auto& sink : {cancelled, ended}) sink->refuse_next(kForEver);
  const RequestId id = engine->submit(test::greedy(prompt(5), 4), cancelled);
  engine->submit(test::greedy(prompt(5), 1), ended);
  engine->step();
  engine->cancel(id);
  engine->step();
  const std::weak_ptr<CollectSink> watched[] = {cancelled, ended};
  cancelled.reset();
  ended.reset();
  for (const double seconds : {29.0, 0.9}) {
    clock.advance(seconds);
    engine->step();
    for (const auto& sink : watched) EXPECT_FALSE(sink.expired());
  }
  clock.advance(0.2);
  engine->step();
  for (const auto& sink : watched) EXPECT_TRUE(sink.expired());
  EXPECT_FALSE(engine->step());
  EXPECT_EQ(engine->stats().running + engine->stats().waiting, 0);
}

TEST_F(RequestOptions, what_waits_for_a_reader_is_offered_once_more_when_the_engine_goes) {
  for (const Index tokens : {1, 50}) {  // one that has ended, and one that has not
    auto engine = open_stories(model_);
    const auto sink = std::make_shared<SlowSink>();
    engine->submit(test::greedy(prompt(5), tokens), sink);
    for (int i = 0; i < 10; ++i) engine->step();
    EXPECT_TRUE(sink->events.empty());
    sink->most = 100;
    engine.reset();
    ASSERT_FALSE(sink->events.empty());
    const std::size_t all = sink->events.size();
    for (std::size_t i = 0; i < all; ++i) {
      EXPECT_EQ(sink->events[i].finished.has_value(), i + 1 == all);
      EXPECT_EQ(sink->events[i].token.has_value(), tokens == 1 || i + 1 < all);
    }
    EXPECT_EQ(sink->events.back().finished,
              tokens == 1 ? FinishReason::Length : FinishReason::Cancelled);
  }
}

// With drafts, a step has several tokens, which wait for the reader together.
TEST_F(RequestOptions, a_reader_that_takes_something_is_not_given_up) {
  ScriptedClock clock;
  const std::vector<TokenId> text =
      test::run_request(*open_stories(model_), test::greedy(prompt(5), 40))->tokens;
  EngineOptions options{.clock = &clock};
  options.draft.function = [&](std::span<const TokenId> known, Index most) {
    const std::size_t at = known.size() - 5;
    const std::size_t end = std::min(text.size(), at + static_cast<std::size_t>(most));
    return std::vector<TokenId>(text.begin() + static_cast<std::ptrdiff_t>(std::min(at, end)),
                                text.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const auto engine = open_stories(model_, options);
  const auto sink = std::make_shared<SlowSink>();
  Request request = test::greedy(prompt(5), 40);
  request.spec.depth = 16;
  engine->submit(std::move(request), sink);
  for (int i = 0; i < 300 && (sink->events.empty() || !sink->events.back().finished); ++i) {
    engine->step();
    if (i % 3 == 2) clock.advance(3), ++sink->most;
  }
  ASSERT_EQ(sink->events.size(), text.size());
  EXPECT_EQ(sink->events.back().finished, FinishReason::Length);
}

TEST_F(RequestOptions, requests_whose_readers_do_not_read_are_bounded) {
  const auto engine = open_stories(model_, {.max_queue = 3, .max_sequences = 2});
  std::vector<std::shared_ptr<SlowSink>> sinks;
  for (int i = 0; i < 50; ++i) {
    const auto sink = std::make_shared<SlowSink>();
    try {
      engine->submit(test::greedy(prompt(5), 50), sink);
      sinks.push_back(sink);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Resource);
    }
    engine->step();
  }
  EXPECT_LE(sinks.size(), 5u);
  for (const auto& sink : sinks) sink->most = 100;
  for (int i = 0; i < 500; ++i) engine->step();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->events.back().finished);
  EXPECT_NO_THROW(engine->submit(test::greedy(prompt(5), 1), std::make_shared<SlowSink>()));
}

TEST_F(RequestOptions, a_failure_while_planning_ends_every_request_with_its_error) {
  const auto calls_of_a_step = [&] {
    FailingClock clock;
    const auto engine = open_stories(model_, {.clock = &clock});
    submit(*engine, test::greedy(prompt(5), 50));
    engine->step();
    clock.calls_left = 1000;
    engine->step();
    return 1000 - clock.calls_left;
  }();
  ASSERT_GT(calls_of_a_step, 2);
  std::ptrdiff_t most_by_the_clock = 0;
  for (int call = 1; call <= calls_of_a_step; ++call) {
    FailingClock clock;
    const auto engine = open_stories(model_, {.clock = &clock, .max_sequences = 2});
    std::vector<std::shared_ptr<CollectSink>> sinks;
    for (int i = 0; i < 4; ++i) {
      sinks.push_back(submit(*engine, test::greedy(prompt(40 + i), 50)));
    }
    for (int i = 0; i < 3; ++i) engine->step();
    clock.calls_left = call;
    for (int i = 0; i < 500 && !std::ranges::all_of(sinks, &CollectSink::is_finished); ++i) {
      try {
        engine->step();
      } catch (const std::runtime_error&) {  // a step that has not begun
      }
    }
    for (const auto& sink : sinks) ASSERT_TRUE(sink->is_finished()) << "call " << call;
    EXPECT_EQ(engine->stats().failed + engine->stats().succeeded, 4) << "call " << call;
    std::ptrdiff_t by_the_clock = 0;
    for (const auto& sink : sinks) {
      const bool here = sink->last().error.find("the clock has stopped") != std::string::npos;
      EXPECT_EQ(here, sink->last().finished == FinishReason::Failed) << "call " << call;
      by_the_clock += here;
    }
    most_by_the_clock = std::max(most_by_the_clock, by_the_clock);
    // The engine goes on.
    const auto next = submit(*engine, test::greedy(prompt(40), 5));
    for (int i = 0; i < 20; ++i) engine->step();
    ASSERT_TRUE(next->is_finished());
    EXPECT_EQ(next->tokens.size(), 5u);
  }
  EXPECT_EQ(most_by_the_clock, 4);
}

}  // namespace
}  // namespace hone::infer
