// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread_placement.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "hone/core/thread_pool.h"

namespace hone {
namespace {

constexpr int kRounds = 100;
// Linux may move a thread at any time, between two calls of a test, too, so a few rounds may end
// otherwise.
constexpr int kMostRounds = 90;

cpu_set_t affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  return mask;
}

void set_affinity(const cpu_set_t& mask) {
  ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
}

void run_only_on(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(static_cast<std::size_t>(cpu), &mask);
  set_affinity(mask);
}

bool has_two_cpus() {
  const cpu_set_t mask = affinity();
  return CPU_COUNT(&mask) > 1;
}

bool has_affinity(const cpu_set_t& mask) {
  const cpu_set_t now = affinity();
  return CPU_EQUAL(&now, &mask);
}

// Runs each test on a thread of its own, so that the affinity it sets ends with the thread.
template <class Body>
void on_own_thread(const Body& body) {
  std::thread(body).join();
}

TEST(ThreadPlacement, a_worker_leaves_the_cpu_of_another) {
  if (!has_two_cpus()) GTEST_SKIP() << "Only one CPU is usable.";
  int moved = 0;
  on_own_thread([&] {
    const cpu_set_t all = affinity();
    for (int round = 0; round < kRounds; ++round) {
      ThreadPlacement placement(2);
      const int cpu = ::sched_getcpu();
      run_only_on(cpu);
      placement.settle(0);
      set_affinity(all);
      placement.settle(1);
      if (::sched_getcpu() != cpu) ++moved;
      ASSERT_TRUE(has_affinity(all));
    }
  });
  EXPECT_GE(moved, kMostRounds);
}

TEST(ThreadPlacement, the_cpu_of_a_sleeping_worker_is_free) {
  if (!has_two_cpus()) GTEST_SKIP() << "Only one CPU is usable.";
  int stayed = 0;
  on_own_thread([&] {
    const cpu_set_t all = affinity();
    for (int round = 0; round < kRounds; ++round) {
      ThreadPlacement placement(2);
      const int cpu = ::sched_getcpu();
      run_only_on(cpu);
      placement.settle(0);
      placement.leave(0);
      set_affinity(all);
      placement.settle(1);
      if (::sched_getcpu() == cpu) ++stayed;
    }
  });
  EXPECT_GE(stayed, kMostRounds);
}

TEST(ThreadPlacement, workers_share_a_cpu_if_the_mask_has_no_other) {
  on_own_thread([] {
    const int cpu = ::sched_getcpu();
    run_only_on(cpu);
    const cpu_set_t one = affinity();
    ThreadPlacement placement(3);
    for (int worker = 0; worker < 3; ++worker) placement.settle(worker);
    EXPECT_TRUE(has_affinity(one));
    EXPECT_EQ(::sched_getcpu(), cpu);
  });
}

// Both threads of a pool are brought to one CPU, from which they may go.
TEST(ThreadPlacement, the_workers_of_a_pool_separate) {
  if (!has_two_cpus()) GTEST_SKIP() << "Only one CPU is usable.";
  int apart = 0;
  on_own_thread([&] {
    const cpu_set_t all = affinity();
    ThreadPool pool(2);
    std::array<int, 2> cpus{};
    // Each of two workers runs one chunk.
    const auto on_both = [&](const auto& body) {
      std::atomic<int> arrived{0};
      pool.parallel_for(2, 1, [&](Index, Index, int worker) {
        const int cpu = ::sched_getcpu();
        arrived.fetch_add(1);
        while (arrived.load() < 2) std::this_thread::yield();
        body(worker, cpu);
      });
    };
    for (int round = 0; round < kRounds; ++round) {
      const int cpu = ::sched_getcpu();
      on_both([&](int, int) {
        run_only_on(cpu);
        set_affinity(all);
      });
      on_both([&](int worker, int now) { cpus[static_cast<std::size_t>(worker)] = now; });
      if (cpus[0] != cpus[1]) ++apart;
    }
  });
  EXPECT_GE(apart, kMostRounds);
}

}  // namespace
}  // namespace hone
