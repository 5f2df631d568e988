// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

QueuedRequest with_prompt(TokenId id) {
  QueuedRequest request;
  request.request.tokens = {id};
  return request;
}

TEST(RequestQueue, gives_back_in_order_of_arrival_with_rising_ids) {
  RequestQueue queue(8);
  std::vector<RequestId> ids;
  for (const TokenId token : {5, 6, 7}) ids.push_back(queue.push(with_prompt(token)));
  EXPECT_TRUE(ids[0] < ids[1] && ids[1] < ids[2]);
  const auto taken = queue.take();
  ASSERT_EQ(taken.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(taken[i].id, ids[i]);
    EXPECT_EQ(taken[i].request.tokens.front(), static_cast<TokenId>(5 + i));
  }
  EXPECT_TRUE(queue.take().empty());
  EXPECT_GT(queue.new_id(), ids[2]);
}

// Waiting requests count until the engine thread says that they run, wherever they wait.
TEST(RequestQueue, refuses_at_its_bound_until_a_request_runs) {
  RequestQueue queue(2);
  queue.push(with_prompt(1));
  queue.push(with_prompt(2));
  const auto refused = [&] {
    try {
      queue.push(with_prompt(3));
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Resource);
      return true;
    }
  };
  EXPECT_TRUE(refused());
  queue.take();
  EXPECT_TRUE(refused());
  queue.report({.running = 1}, 0);
  EXPECT_FALSE(refused());
  EXPECT_TRUE(refused());
  queue.report({.running = 1, .succeeded = 1}, 0);
  EXPECT_FALSE(refused());
}

TEST(RequestQueue, several_requests_are_accepted_together_or_not_at_all) {
  RequestQueue queue(4);
  queue.push(with_prompt(1));
  const auto group = [](std::initializer_list<TokenId> prompts) {
    std::vector<QueuedRequest> out;
    for (const TokenId token : prompts) out.push_back(with_prompt(token));
    return out;
  };
  EXPECT_THROW(queue.push(group({2, 2, 2, 2})), RefusedError);
  EXPECT_EQ(queue.stats().submitted, 1);
  const std::vector<RequestId> ids = queue.push(group({2, 3, 2}));
  const std::vector<QueuedRequest> taken = queue.take();
  ASSERT_EQ(taken.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(taken[i + 1].id, ids[i]);
  EXPECT_EQ(taken[1].fork_of, std::nullopt);
  EXPECT_EQ(taken[2].fork_of, std::nullopt);
  EXPECT_EQ(taken[3].fork_of, ids[0]);
  // More than could ever wait is no matter of coming again.
  try {
    queue.push(group({1, 2, 3, 4, 5}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::InvalidArgument);
  }
}

TEST(RequestQueue, every_request_is_counted_in_one_state) {
  RequestQueue queue(10);
  for (int i = 0; i < 7; ++i) queue.push(with_prompt(1));
  queue.report({.running = 2, .succeeded = 1, .cancelled = 1, .failed = 1}, 0);
  const EngineStats stats = queue.stats();
  EXPECT_EQ(stats.submitted, 7);
  EXPECT_EQ(stats.waiting, 2);
  EXPECT_EQ(stats.running, 2);
}

TEST(RequestQueue, cancel_raises_the_flag_wherever_the_request_is_and_is_told_once) {
  RequestQueue queue(4);
  const RequestId first = queue.push(with_prompt(1));
  const RequestId second = queue.push(with_prompt(2));
  const auto taken = queue.take();
  queue.cancel(second);
  queue.cancel(999);
  EXPECT_FALSE(taken[0].cancelled->load());
  EXPECT_TRUE(taken[1].cancelled->load());
  EXPECT_THAT(queue.take_cancelled(), ElementsAre(second));
  queue.cancel(second);
  EXPECT_THAT(queue.take_cancelled(), IsEmpty());
  queue.forget(first);
  queue.cancel(first);  // unknown now: nothing happens
  EXPECT_THAT(queue.take_cancelled(), IsEmpty());
}

TEST(RequestQueue, wait_returns_on_news_on_stop_and_soon_when_parked) {
  RequestQueue queue(4);
  std::stop_source stop;
  queue.push(with_prompt(1));
  queue.wait(stop.get_token(), false);
  queue.wait(stop.get_token(), true);
  std::jthread poster([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    queue.push(with_prompt(2));
  });
  queue.wait(stop.get_token(), false);
  EXPECT_EQ(queue.stats().waiting, 2);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop.request_stop();
  });
  queue.wait(stop.get_token(), false);
}

}  // namespace
}  // namespace hone::infer
