// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/core/thread/thread_pool.h"

namespace hone {
namespace {

// One random region: plain, publishing or nested, sometimes with a body that throws.
class RandomRegion {
 public:
  RandomRegion(ThreadPool& pool, PhiloxStream& random) : pool_(pool) {
    n_ = random.below(random.below(8) == 0 ? 5000 : 70);
    grain_ = 1 + random.below(random.below(2) == 0 ? 3 : 100);
    kind_ = random.below(3);
    if (random.below(4) == 0 && n_ > 0) bad_ = random.below(static_cast<std::uint32_t>(n_));
    hits_ = std::vector<std::atomic<int>>(static_cast<std::size_t>(n_));
  }

  void run() {
    bool threw = false;
    try {
      if (kind_ == 0) run_plain();
      if (kind_ == 1) run_publish();
      if (kind_ == 2) run_nested();
    } catch (const Error& error) {
      threw = true;
      ASSERT_STREQ(error.what(), "planned");
    }
    ASSERT_EQ(threw, bad_ >= 0) << "kind " << kind_ << ", n " << n_;
    for (const auto& count : hits_) {
      ASSERT_LE(count, 1);
      ASSERT_GE(count, threw ? 0 : 1);
    }
  }

 private:
  void hit(Index i) {
    if (i == bad_) throw Error(ErrorCategory::Internal, "planned");
    ++hits_[static_cast<std::size_t>(i)];
  }
  void run_plain() {
    pool_.parallel_for(n_, grain_, [&](Index begin, Index end, int) {
      for (Index i = begin; i < end; ++i) hit(i);
    });
  }
  void run_publish() {
    pool_.parallel_publish(
        {.chunks = n_,
         .slot_bytes = static_cast<Index>(sizeof(Index)) * grain_,
         .compute = [](Index chunk, std::byte* slot) { std::memcpy(slot, &chunk, 8); },
         .commit =
             [&](Index chunk, const std::byte* slot) {
               Index stored = -1;
               std::memcpy(&stored, slot, 8);
               if (stored != chunk) hit(chunk);  // wrong slot: counts twice
               hit(chunk);
             }});
  }
  void run_nested() {
    pool_.parallel_for(ceil_div(n_, grain_), 1, [&](Index begin, Index end, int) {
      for (Index part = begin; part < end; ++part) {
        const Index first = part * grain_;
        pool_.parallel_for(std::min(grain_, n_ - first), 2, [&](Index from, Index to, int) {
          for (Index i = from; i < to; ++i) hit(first + i);
        });
      }
    });
  }

  ThreadPool& pool_;
  Index n_ = 0, grain_ = 1, bad_ = -1;
  std::uint32_t kind_ = 0;
  std::vector<std::atomic<int>> hits_;
};

class ThreadPoolStress : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolStress, random_regions_run_every_index_once_or_report_the_error) {
  ThreadPool pool(GetParam());
  PhiloxStream random(static_cast<std::uint64_t>(GetParam()));
  for (int round = 0; round < 2000 && !HasFatalFailure(); ++round) RandomRegion(pool, random).run();
}

TEST_P(ThreadPoolStress, callers_mix_their_regions_and_keep_their_own_errors) {
  ThreadPool pool(GetParam());
  std::vector<std::thread> callers;
  for (std::uint64_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&pool, caller] {
      PhiloxStream random(100 + caller);
      for (int round = 0; round < 300 && !testing::Test::HasFatalFailure(); ++round)
        RandomRegion(pool, random).run();
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// More tickets than the pool remembers regions: after wait_left() nobody is inside that region's
// compute, so its inputs may go.
TEST_P(ThreadPoolStress, two_hundred_tickets_can_be_waited_for_in_any_order) {
  ThreadPool pool(GetParam());
  constexpr std::size_t kRegions = 200;
  std::vector<PublishTicket> tickets;
  std::vector<std::unique_ptr<std::vector<Index>>> inputs;
  std::vector<std::atomic<int>> inside(kRegions), commits(kRegions);
  for (std::size_t region = 0; region < kRegions; ++region) {
    inputs.push_back(std::make_unique<std::vector<Index>>(12, static_cast<Index>(region)));
    tickets.push_back(pool.parallel_publish(
        {.chunks = 12,
         .slot_bytes = 8,
         .compute =
             [&inside, region, input = inputs.back().get()](Index chunk, std::byte* slot) {
               ++inside[region];
               if (chunk == 5 && region % 16 == 0)
                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
               const Index value = (*input)[static_cast<std::size_t>(chunk)] + chunk;
               std::memcpy(slot, &value, sizeof value);
               --inside[region];
             },
         .commit =
             [&commits, region](Index chunk, const std::byte* slot) {
               Index value = 0;
               std::memcpy(&value, slot, sizeof value);
               if (value == static_cast<Index>(region) + chunk) ++commits[region];
             },
         .wait_for_stragglers = false}));
  }
  std::vector<std::size_t> order(kRegions);
  PhiloxStream random(9);
  for (std::size_t i = 0; i < kRegions; ++i) {
    order[i] = i;
    std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1))]);
  }
  for (const std::size_t region : order) {
    pool.wait_left(tickets[region]);
    ASSERT_EQ(inside[region], 0);
    ASSERT_EQ(commits[region], 12);
    inputs[region].reset();  // a straggler would read freed memory
    pool.wait_left(tickets[region]);
  }
  pool.wait_left({});
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolStress, testing::Values(1, 2, 3, 5));

TEST(ThreadPool, chunk_borders_do_not_depend_on_the_number_of_threads) {
  const auto borders = [](Executor& executor) {
    std::vector<std::atomic<Index>> ends(1000);
    executor.parallel_for(1000, 37, [&](Index begin, Index end, int) { ends[begin] = end; });
    return std::vector<Index>(ends.begin(), ends.end());
  };
  const auto expected = borders(serial_executor());
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(borders(pool), expected);
  }
}

TEST(ThreadPool, a_grain_that_is_not_positive_is_an_argument_error) {
  ThreadPool pool(2);
  const auto nothing = [](Index, Index, int) {};
  EXPECT_THROW(pool.parallel_for(10, 0, nothing), Error);
  EXPECT_THROW(pool.parallel_for(10, -1, nothing), Error);
  EXPECT_THROW(serial_executor().parallel_for(10, 0, nothing), Error);
}

TEST(ThreadPool, comes_and_goes_without_work) {
  for (int i = 0; i < 50; ++i) {
    const ThreadPool pool(1 + i % 4);
    EXPECT_EQ(pool.workers(), 1 + i % 4);
  }
}

// A worker may still be on its way into the last region when the pool goes.
TEST(ThreadPool, ends_right_after_a_region) {
  for (const int threads : {2, 3, 8}) {
    for (int i = 0; i < 1500; ++i) {
      ThreadPool pool(threads);
      std::atomic<Index> sum{0};
      for (int region = 0; region <= i % 3; ++region) {
        pool.parallel_for(threads, 1, [&](Index begin, Index end, int) { sum += end - begin; });
      }
      ASSERT_EQ(sum, threads * (i % 3 + 1));
    }
  }
}

}  // namespace
}  // namespace hone
