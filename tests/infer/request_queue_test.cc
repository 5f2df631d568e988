// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/request_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

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
  for (const TokenId token : {5, 6, 7}) {
    const auto next = queue.pop();
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->request.tokens.front(), token);
  }
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(RequestQueue, refuses_at_its_bound_and_takes_again_after_a_pop) {
  RequestQueue queue(2);
  queue.push(with_prompt(1));
  queue.push(with_prompt(2));
  EXPECT_EQ(queue.waiting(), 2);
  try {
    queue.push(with_prompt(3));
    FAIL() << "a third request was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::Resource);
  }
  queue.pop();
  EXPECT_NO_THROW(queue.push(with_prompt(3)));
}

TEST(RequestQueue, cancel_raises_the_flag_wherever_the_request_is) {
  RequestQueue queue(4);
  const RequestId running = queue.push(with_prompt(1));
  const RequestId waiting = queue.push(with_prompt(2));
  queue.push(with_prompt(3));
  const auto taken = queue.pop();
  queue.cancel(running);
  queue.cancel(waiting);
  queue.cancel(999);
  EXPECT_TRUE(taken->cancelled->load());
  const auto cancelled = queue.take_cancelled();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled.front().id, waiting);
  EXPECT_EQ(queue.pop()->request.tokens.front(), 3);
  queue.forget(running);
  queue.cancel(running);  // unknown now: nothing happens
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
  EXPECT_EQ(queue.waiting(), 2);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stop.request_stop();
  });
  queue.wait(stop.get_token(), false);
  EXPECT_TRUE(stop.stop_requested());
}

TEST(RequestQueue, many_threads_lose_and_double_nothing) {
  RequestQueue queue(4000);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&queue] {
      for (int i = 0; i < 1000; ++i) {
        const RequestId id = queue.push(with_prompt(1));
        if (i % 3 == 0) queue.cancel(id);
      }
    });
  }
  Index seen = 0;
  RequestId highest = 0;
  while (seen < 4000) {
    seen += static_cast<Index>(queue.take_cancelled().size());
    if (const auto next = queue.pop()) {
      EXPECT_GT(next->id, highest);
      highest = next->id;
      ++seen;
    }
  }
  EXPECT_EQ(queue.waiting(), 0);
}

}  // namespace
}  // namespace hone::infer
