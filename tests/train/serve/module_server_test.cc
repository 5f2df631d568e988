// SPDX-License-Identifier: Apache-2.0
// Every request gets its own result or its own error, within the limit, until the end.
#include "hone/train/serve/module_server.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "tests/support/error_of.h"
#include "tests/support/scripted_clock.h"

namespace hone::nn {
namespace {

using testing::HasSubstr;
using torch::Tensor;

constexpr float kPoison = 666;

// 2 x + 1. Throws for a batch that has the poison, with its value behind it.
ModuleCall doubling(std::function<void(Index rows)> on_run = {}) {
  return {std::make_shared<torch::nn::Module>(), [=](const Tensor& x) {
            if (on_run) on_run(x.size(0));
            const Tensor first = x.reshape({x.size(0), -1});
            for (Index row = 0; row < x.size(0); ++row) {
              if (first[row][0].item<float>() != kPoison) continue;
              throw std::runtime_error("poison " + std::to_string(first[row][1].item<int>()));
            }
            return 2 * x + 1;
          }};
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

PhiloxBlock draws(std::uint64_t key, Index i) {
  return philox(key, {static_cast<std::uint32_t>(i), 0, 0, 0});
}

std::string error_of(std::future<ModuleResult> result) {
  try {
    result.get();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ModuleServer, gives_each_input_the_row_that_the_module_computes) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::BatchNorm1d(7),
                            torch::nn::Dropout(0.5));
  const Tensor x = at::randn({20, 5});
  const Tensor want = [&] {
    const at::NoGradGuard no_grad;
    const EvaluationScope evaluation(*net);
    return net->forward(x);
  }();
  {
    ModuleServer server(net, {.max_batch = 6});
    const ModuleServer::Predictions got = server.predict_batch(x.unbind(0));
    ASSERT_EQ(got.outputs.size(), 20U);
    for (Index i = 0; i < 20; ++i) {
      const Tensor& output = got.outputs[static_cast<std::size_t>(i)];
      EXPECT_TRUE(at::allclose(output, want[i], 1e-5, 1e-6));
      EXPECT_FALSE(output.requires_grad());
    }
    const double slowest = *std::ranges::max_element(got.latencies_ms);
    EXPECT_GT(slowest, 0);
    EXPECT_GE(got.latency_ms, slowest);
    EXPECT_FALSE(net->is_training()) << "in evaluation mode while it serves";
  }
  EXPECT_TRUE(net->is_training()) << "and back in its own mode";
}

TEST(ModuleServer, a_poisoned_input_fails_alone_with_its_own_error) {
  ModuleServer server(doubling(), {.max_batch = 8, .max_wait_ms = 200});
  std::vector<std::future<ModuleResult>> results;
  for (int i = 0; i < 8; ++i) {
    const bool is_poisoned = i == 2 || i == 5;
    results.push_back(server.submit(
        at::tensor({is_poisoned ? kPoison : static_cast<float>(i), static_cast<float>(i)})));
  }
  for (int i = 0; i < 8; ++i) {
    auto& result = results[static_cast<std::size_t>(i)];
    if (i == 2 || i == 5) {
      EXPECT_EQ(error_of(std::move(result)), "poison " + std::to_string(i));
    } else {
      EXPECT_EQ(result.get().output[1].item<float>(), 2 * static_cast<float>(i) + 1);
    }
  }
  EXPECT_EQ(server.counters().failed, 2);
  EXPECT_EQ(server.counters().finished, 6);
}

TEST(ModuleServer, batches_only_inputs_that_can_be_stacked) {
  std::atomic<Index> largest = 0;
  ModuleServer server(doubling([&](Index rows) { largest = std::max<Index>(largest, rows); }),
                      {.max_batch = 16, .max_wait_ms = 50});
  std::vector<Tensor> inputs;
  for (Index i = 0; i < 24; ++i) {
    const auto type = i % 2 == 0 ? at::kFloat : at::kDouble;
    inputs.push_back(at::full({2 + i % 3}, static_cast<double>(i), type));
  }
  const auto got = server.predict_batch(inputs);
  for (Index i = 0; i < 24; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_TRUE(got.outputs[at].equal(2 * inputs[at] + 1));
    EXPECT_EQ(got.outputs[at].scalar_type(), inputs[at].scalar_type());
  }
  EXPECT_GT(largest, 1);
  EXPECT_LE(largest, 4) << "six kinds of inputs, four of each";
}

// 10^5 requests with random sizes and failures from eight threads, and a shutdown in the middle of
// what a ninth one submits.
TEST(ModuleServer, loses_and_confuses_nothing_under_load) {
  constexpr Index kThreads = 8, kRequests = 12'500;
  auto server = std::make_unique<ModuleServer>(
      doubling(), ModuleServerOptions{.max_batch = 32, .max_wait_ms = 0.2, .max_queue = 4096});
  std::atomic<Index> right = 0, poisoned = 0, wrong = 0, full = 0;
  const auto submit_all = [&](Index thread) {
    std::vector<std::pair<Tensor, std::future<ModuleResult>>> results;
    const auto check = [&] {
      for (auto& [input, result] : results) {
        try {
          (result.get().output.equal(2 * input + 1) ? right : wrong) += 1;
        } catch (const std::runtime_error& error) {
          const auto want = "poison " + std::to_string(input[1].item<int>());
          (input[0].item<float>() == kPoison && error.what() == want ? poisoned : wrong) += 1;
        }
      }
      results.clear();
    };
    for (Index i = 0; i < kRequests; ++i) {
      const PhiloxBlock draw = draws(static_cast<std::uint64_t>(thread), i);
      const Tensor input = at::full({2 + static_cast<Index>(draw[0] % 5)},
                                    static_cast<double>(kRequests * thread + i), at::kFloat);
      if (draw[1] % 300 == 0) input[0].fill_(kPoison);
      for (bool is_in = false; !is_in;) {
        try {
          results.emplace_back(input, server->submit(input));
          is_in = true;
        } catch (const Error& error) {
          ASSERT_EQ(error.category(), ErrorCategory::Resource);
          ++full;
          check();
        }
      }
      if (results.size() >= 1000) check();
    }
    check();
  };
  std::vector<std::thread> threads;
  for (Index thread = 0; thread < kThreads; ++thread) threads.emplace_back(submit_all, thread);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(poisoned, 100);
  EXPECT_EQ(right + poisoned, kThreads * kRequests);
  const BatcherCounters before = server->counters();
  EXPECT_EQ(before.submitted, before.finished + before.failed + before.refused);
  EXPECT_EQ(before.refused, full);

  std::vector<std::future<ModuleResult>> last;
  std::atomic<bool> has_some = false;
  std::thread ninth([&] {
    try {
      for (;;) {
        last.push_back(server->submit(at::ones({2})));
        has_some = last.size() > 20;
      }
    } catch (const Error&) {  // the queue is full, or the server is closed
      has_some = true;
    }
  });
  while (!has_some) std::this_thread::yield();
  server->shutdown();
  ninth.join();
  for (std::future<ModuleResult>& result : last) {
    ASSERT_EQ(result.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_EQ(result.get().output[0].item<float>(), 3);
  }
  const BatcherCounters after = server->counters();
  EXPECT_EQ(after.waiting + after.running, 0);
}

TEST(ModuleServer, drains_without_waiting_for_full_batches) {
  ModuleServer server(doubling(), {.max_batch = 8, .max_wait_ms = 1e8});
  auto one = server.submit(at::ones({2})), two = server.submit(at::ones({2}));
  server.shutdown();
  EXPECT_EQ(one.get().batch, 2);
  EXPECT_EQ(two.get().output[0].item<float>(), 3);
  EXPECT_THAT(test::error_of([&] { server.submit(at::ones({2})); }), HasSubstr("shut down"));
  server.shutdown();  // again does nothing
}

TEST(ModuleServer, shuts_down_from_several_threads_and_from_the_module) {
  ModuleServer* own = nullptr;
  std::string nested;
  ModuleServer server(doubling([&](Index) {
                        nested = test::error_of([&] { own->predict_batch({at::ones({2})}); });
                        own->shutdown();
                      }),
                      {.max_wait_ms = 0});
  own = &server;
  auto result = server.submit(at::ones({2}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { server.shutdown(); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(result.get().output[0].item<float>(), 3);
  EXPECT_THAT(nested, HasSubstr("wait for itself"));
}

TEST(ModuleServer, predict_batch_ends_when_the_server_shuts_down) {
  std::optional<ModuleServer> server(std::in_place, doubling(),
                                     ModuleServerOptions{.max_wait_ms = 0, .max_queue = 2});
  std::atomic<bool> has_begun = false;
  std::string error;
  std::thread caller([&] {
    has_begun = true;
    error = test::error_of([&] { server->predict_batch(std::vector(20000, at::ones({2}))); });
  });
  while (!has_begun) std::this_thread::yield();
  server->shutdown();
  caller.join();
  EXPECT_THAT(error, HasSubstr("shut down"));
}

TEST(ModuleServer, gives_results_that_share_no_memory_with_inputs) {
  const auto module = std::make_shared<torch::nn::Module>();
  ModuleServer server({module, [](const Tensor& x) { return x; }}, {.max_wait_ms = 0});
  const Tensor input = at::ones({3});
  const Tensor output = server.submit(input).get().output;
  input.zero_();
  EXPECT_TRUE(output.equal(at::ones({3})));
}

TEST(ModuleQueue, is_bounded_and_runs_at_once_when_full) {
  test::ScriptedClock clock;
  ModuleQueue queue(doubling(), {.max_wait_ms = 1e8, .max_queue = 3}, clock);
  std::vector<std::future<ModuleResult>> results;
  for (int i = 0; i < 3; ++i) results.push_back(queue.submit(at::ones({2})).result);
  EXPECT_EQ(queue.submit(at::ones({2})).refusal, BatchRefusal::QueueFull);
  EXPECT_TRUE(queue.run_due());
  EXPECT_FALSE(queue.submit(at::ones({2})).refusal);
  for (auto& result : results) EXPECT_EQ(result.get().batch, 3);
}

TEST(ModuleQueue, cancels_what_waits_and_nothing_that_runs) {
  test::ScriptedClock clock;
  std::vector<std::string> ends;
  const auto note = [&ends](const char* name) {
    return [&ends, name](const ModuleResult& result, const std::exception_ptr& error) {
      ends.push_back(std::string(name) + (error ? " cancelled" : " done"));
      EXPECT_EQ(result.output.defined(), !error);
    };
  };
  ModuleQueue* running = nullptr;
  ModuleQueue queue(doubling([&](Index) { running->cancel_waiting(); }),
                    {.max_batch = 2, .max_wait_ms = 0}, clock);
  running = &queue;
  for (const char* name : {"a", "b", "c"}) EXPECT_FALSE(queue.submit(at::ones({2}), note(name)));
  EXPECT_TRUE(queue.run_due());
  EXPECT_FALSE(queue.run_due());
  EXPECT_EQ(ends, (std::vector<std::string>{"c cancelled", "a done", "b done"}));
  const BatcherCounters counters = queue.counters();
  EXPECT_EQ(counters.cancelled, 1);
  EXPECT_EQ(counters.finished, 2);
  EXPECT_EQ(counters.waiting + counters.running, 0);
}

TEST(ModuleServer, calls_back_with_results_errors_and_refusals) {
  std::promise<void> failed, done;
  ModuleServer server(doubling(), {.max_batch = 4, .max_wait_ms = 0});
  server.submit(at::tensor({kPoison, 3.0F}), [&](const ModuleResult&, const auto& error) {
    EXPECT_THAT(message_of(error), HasSubstr("poison 3"));
    failed.set_value();
  });
  server.submit(at::ones({2}), [&](const ModuleResult& result, const auto& error) {
    EXPECT_FALSE(error);
    EXPECT_TRUE(result.output.equal(at::full({2}, 3.0F)));
    done.set_value();
  });
  failed.get_future().wait();
  done.get_future().wait();
  server.shutdown();
  EXPECT_THROW(server.submit(at::ones({2}), [](const ModuleResult&, const auto&) {}), Error);
}

TEST(ModuleQueue, says_when_an_input_that_is_alone_will_run) {
  test::ScriptedClock clock;
  ModuleQueue queue(doubling(), {.max_batch = 4, .max_wait_ms = 20}, clock);
  EXPECT_FALSE(queue.next_timer());
  auto result = queue.submit(at::ones({2})).result;
  EXPECT_EQ(queue.next_timer(), clock.now_ns() + 20'000'000);
  EXPECT_FALSE(queue.run_due());
  clock.advance(0.02);
  EXPECT_TRUE(queue.run_due());
  EXPECT_NEAR(result.get().latency_ms, 20, 1e-6);
}

// Inputs that arrive at random, also while a batch runs, on a clock that only they and the batches
// move. A batch takes 2 ms and 0.5 ms for each row.
class Arrivals {
 public:
  Arrivals(const ModuleServerOptions& options, Index count, double mean_ms)
      : queue_(doubling([this](Index rows) {
                 advance_to(clock_.now_ns() + 2'000'000 + 500'000 * rows);
               }),
               options, clock_) {
    TimeNs time = clock_.now_ns();
    for (Index i = 0; i < count; ++i) {
      time +=
          static_cast<TimeNs>(2e6 * mean_ms * static_cast<double>(draws(1, i)[0]) / 4294967296.0);
      times_.push_back(time);
    }
  }

  void run() {
    for (;;) {
      while (queue_.run_due()) {
      }
      const std::optional<TimeNs> timer = queue_.next_timer();
      if (next_ == times_.size() && !timer) return;
      const TimeNs arrival = next_ < times_.size() ? times_[next_] : *timer;
      advance_to(timer ? std::min(arrival, *timer) : arrival);
    }
  }

  std::vector<std::future<ModuleResult>> results;
  Index refused = 0;

 private:
  void advance_to(TimeNs time) {
    while (next_ < times_.size() && times_[next_] <= time) {
      move_clock(times_[next_++]);
      auto submitted = queue_.submit(at::ones({2}));
      if (submitted.refusal) {
        ++refused;
      } else {
        results.push_back(std::move(submitted.result));
      }
    }
    move_clock(time);
  }
  void move_clock(TimeNs time) {
    if (time > clock_.now_ns()) clock_.advance(1e-9 * static_cast<double>(time - clock_.now_ns()));
  }

  test::ScriptedClock clock_;
  ModuleQueue queue_;
  std::vector<TimeNs> times_;
  std::size_t next_ = 0;
};

TEST(ModuleQueue, nobody_gets_a_result_later_than_the_limit) {
  for (const double limit_ms : {15.0, 40.0}) {
    Arrivals arrivals({.max_batch = 8, .max_wait_ms = 5, .max_latency_ms = limit_ms}, 4000, 0.6);
    arrivals.run();
    Index late = 0, done = 0, refused = arrivals.refused;
    // The first batches have no known time, and those of other sizes are predicted from them.
    for (std::size_t i = 40; i < arrivals.results.size(); ++i) {
      try {
        const double latency = arrivals.results[i].get().latency_ms;
        EXPECT_LE(latency, 1.02 * limit_ms);
        late += i >= 300 && latency > limit_ms + 1e-3 ? 1 : 0;
        ++done;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("latency_limit"));
        ++refused;
      }
    }
    EXPECT_EQ(late, 0) << limit_ms;
    EXPECT_GT(done, 1500) << limit_ms;
    EXPECT_GT(refused, 100) << "more arrive than can be computed";
  }
}

TEST(ModuleQueue, without_load_nobody_waits_longer_than_asked) {
  Arrivals arrivals({.max_batch = 64, .max_wait_ms = 10}, 500, 20);
  arrivals.run();
  ASSERT_EQ(arrivals.results.size(), 500U);
  for (std::future<ModuleResult>& each : arrivals.results) {
    const ModuleResult result = each.get();
    // A batch in progress may take as long as ten rows do; the own one takes what it takes.
    const double own = 2 + 0.5 * static_cast<double>(result.batch);
    EXPECT_LE(result.latency_ms, 10 + 7 + own + 1e-3);
  }
}

TEST(ModuleQueue, fails_inputs_whose_outputs_are_not_rows) {
  test::ScriptedClock clock;
  const auto module = std::make_shared<torch::nn::Module>();
  ModuleQueue sum({module, [](const Tensor& x) { return x.sum(); }}, {.max_wait_ms = 0}, clock);
  auto result = sum.submit(at::ones({2})).result;
  while (sum.run_due()) {
  }
  EXPECT_THAT(error_of(std::move(result)), HasSubstr("1 rows"));
}

TEST(ModuleQueue, fails_what_still_waits_when_it_ends) {
  test::ScriptedClock clock;
  std::future<ModuleResult> result;
  {
    ModuleQueue queue(doubling(), {.max_wait_ms = 1000}, clock);
    result = queue.submit(at::ones({2})).result;
  }
  EXPECT_THAT(error_of(std::move(result)), HasSubstr("shut down"));
}

TEST(ModuleServer, refuses_options_and_inputs_that_mean_nothing) {
  using hone::test::error_of;
  const auto start = [](const ModuleServerOptions& options) {
    return error_of([&] { ModuleServer(doubling(), options); });
  };
  EXPECT_THAT(start({.max_batch = 0}), HasSubstr("at least 1 row"));
  EXPECT_THAT(start({.max_wait_ms = -1}), HasSubstr("max_wait_ms"));
  EXPECT_THAT(start({.max_latency_ms = std::nan("")}), HasSubstr("max_latency_ms"));
  EXPECT_THAT(start({.max_queue = 0}), HasSubstr("queue"));
  ModuleServer server(doubling());
  EXPECT_THAT(error_of([&] { server.submit({}); }), HasSubstr("undefined"));
}

}  // namespace
}  // namespace hone::nn
