// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "hone/core/error.h"
#include "tests/support/resident_memory.h"

namespace hone {
namespace {

class ThreadPoolOf : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolOf, parallel_for_runs_every_index_once) {
  ThreadPool pool(GetParam());
  for (const Index n : {0, 1, 2, 63, 64, 1000, 100003}) {
    for (const Index grain : {1, 7, 64, 100000}) {
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(n));
      pool.parallel_for(n, grain, [&](Index begin, Index end, int worker) {
        ASSERT_EQ(begin % grain, 0);
        ASSERT_LE(end - begin, grain);
        ASSERT_LT(worker, pool.workers());
        for (Index i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit, 1);
    }
  }
}

TEST_P(ThreadPoolOf, publish_commits_every_chunk_once) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 500; ++round) {
    const Index chunks = round % 37;
    std::vector<Index> out(static_cast<std::size_t>(chunks), -1);
    std::vector<std::atomic<int>> commits(static_cast<std::size_t>(chunks));
    pool.parallel_publish({.chunks = chunks,
                           .slot_bytes = sizeof(Index),
                           .compute =
                               [](Index chunk, std::byte* slot) {
                                 const Index value = chunk * chunk;
                                 std::memcpy(slot, &value, sizeof value);
                               },
                           .commit =
                               [&](Index chunk, const std::byte* slot) {
                                 std::memcpy(&out[static_cast<std::size_t>(chunk)], slot,
                                             sizeof(Index));
                                 ++commits[static_cast<std::size_t>(chunk)];
                               }});
    for (Index chunk = 0; chunk < chunks; ++chunk) {
      ASSERT_EQ(out[static_cast<std::size_t>(chunk)], chunk * chunk);
      ASSERT_EQ(commits[static_cast<std::size_t>(chunk)], 1);
    }
  }
}

TEST_P(ThreadPoolOf, first_exception_reaches_the_caller_and_the_pool_survives) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(100, 1,
                                   [](Index begin, Index, int) {
                                     if (begin == 13) throw Error(ErrorCategory::Internal, "13");
                                   }),
                 Error);
    EXPECT_THROW(pool.parallel_publish({.chunks = 20,
                                        .slot_bytes = 8,
                                        .compute =
                                            [](Index chunk, std::byte*) {
                                              if (chunk == 7) throw std::runtime_error("7");
                                            },
                                        .commit = [](Index, const std::byte*) {}}),
                 std::runtime_error);
    EXPECT_THROW(pool.parallel_publish({.chunks = 20,
                                        .slot_bytes = 8,
                                        .compute = [](Index, std::byte*) {},
                                        .commit =
                                            [](Index chunk, const std::byte*) {
                                              if (chunk == 3) throw std::runtime_error("3");
                                            }}),
                 std::runtime_error);
    std::atomic<Index> sum{0};
    pool.parallel_for(100, 3, [&](Index begin, Index end, int) { sum += end - begin; });
    ASSERT_EQ(sum, 100);
  }
}

TEST_P(ThreadPoolOf, nested_calls_run_serially) {
  ThreadPool pool(GetParam());
  std::atomic<Index> sum{0};
  pool.parallel_for(8, 1, [&](Index, Index, int) {
    pool.parallel_for(10, 1, [&](Index begin, Index end, int) { sum += end - begin; });
  });
  EXPECT_EQ(sum, 80);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, callers_from_several_threads_queue) {
  ThreadPool pool(2);
  std::atomic<Index> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        pool.parallel_for(50, 5, [&](Index begin, Index end, int) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 100 * 50);
}

// A worker held inside a chunk (here: asleep) delays the region only until another computes it.
TEST(ThreadPool, a_held_chunk_is_computed_by_another_worker) {
  using std::chrono::milliseconds;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> hold{true};
  for (int round = 0; hold && round < 20; ++round) {  // until the worker has taken a chunk
    ThreadPool pool(2);
    std::atomic<int> commits{0};
    const auto begin = std::chrono::steady_clock::now();
    const auto compute = [&](Index, std::byte*) {
      if (std::this_thread::get_id() == caller) {
        std::this_thread::sleep_for(milliseconds(1));
      } else if (hold.exchange(false)) {
        std::this_thread::sleep_for(milliseconds(400));
      }
    };
    const PublishTicket ticket =
        pool.parallel_publish({.chunks = 16,
                               .slot_bytes = 64,
                               .compute = compute,
                               .commit = [&](Index, const std::byte*) { ++commits; },
                               .wait_for_stragglers = false});
    const auto region = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(commits, 16);
    if (!hold) {
      EXPECT_LT(region, milliseconds(300));
      EXPECT_GE(pool.chunks_recomputed(), 1);
    }
    pool.wait_left(ticket);
    if (!hold) {
      EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(400));
    }
    EXPECT_EQ(commits, 16);
  }
  EXPECT_FALSE(hold);
}

// A region of two threads that has returned while the worker is still inside its first chunk.
class HeldWorker {
 public:
  HeldWorker() {
    const std::thread::id caller = std::this_thread::get_id();
    const auto compute = [this, caller](Index, std::byte*) {
      if (std::this_thread::get_id() == caller) {
        for (int ms = 0; ms < 10'000 && !inside_; ++ms) sleep(1);
      } else if (!held_.exchange(true)) {
        inside_ = true;
        while (!released_) sleep(1);
        inside_ = false;
      }
    };
    ticket_ = pool_.parallel_publish({.chunks = kChunks,
                                      .slot_bytes = 64,
                                      .compute = compute,
                                      .commit = [this](Index, const std::byte*) { ++commits_; },
                                      .wait_for_stragglers = false});
  }
  ~HeldWorker() { released_ = true; }
  static void sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  ThreadPool& pool() { return pool_; }
  PublishTicket ticket() const { return ticket_; }
  bool is_inside() const { return inside_; }
  int commits() const { return commits_; }
  void release() { released_ = true; }
  // More regions than the pool remembers.
  void run_many_regions() {
    for (int i = 0; i < 100; ++i) pool_.parallel_for(4, 1, [](Index, Index, int) {});
  }

  static constexpr int kChunks = 16;

 private:
  std::atomic<bool> held_{false}, inside_{false}, released_{false};
  std::atomic<int> commits_{0};
  ThreadPool pool_{2};
  PublishTicket ticket_;
};

TEST(ThreadPool, a_straggler_delays_no_later_region_and_commits_nothing) {
  HeldWorker held;
  ASSERT_TRUE(held.is_inside());
  EXPECT_EQ(held.commits(), HeldWorker::kChunks);
  held.run_many_regions();
  EXPECT_TRUE(held.is_inside());
  EXPECT_FALSE(held.pool().has_left(held.ticket()));
  held.release();
  held.pool().wait_left(held.ticket());
  EXPECT_TRUE(held.pool().has_left(held.ticket()));
  EXPECT_EQ(held.commits(), HeldWorker::kChunks);
  EXPECT_EQ(held.pool().chunks_recomputed(), 1);
}

TEST(ThreadPool, wait_left_waits_also_while_another_caller_runs_regions) {
  HeldWorker held;
  ASSERT_TRUE(held.is_inside());
  std::thread other([&] { held.run_many_regions(); });
  HeldWorker::sleep(100);
  std::thread later([&] {
    HeldWorker::sleep(100);
    held.release();
  });
  held.pool().wait_left(held.ticket());
  EXPECT_FALSE(held.is_inside());
  other.join();
  later.join();
}

TEST(ThreadPool, a_thread_that_the_system_refuses_is_an_error) {
  if (!test::kCountsMemory) GTEST_SKIP() << "A sanitizer needs address space of its own.";
  const auto start_too_many = [] {
    const auto most = static_cast<rlim_t>(test::address_space_bytes() + (Index{256} << 20));
    const rlimit limit{most, most};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::exit(3);
    try {
      const ThreadPool pool(1000);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::exit(error.category() == ErrorCategory::Resource ? 0 : 1);
    }
    std::exit(2);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(0), "refused thread [0-9]+ of 1000");
}

TEST(ThreadPool, refuses_a_senseless_size) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(5000), Error);
}

}  // namespace
}  // namespace hone
