// SPDX-License-Identifier: Apache-2.0
#include "hone/core/thread/thread_placement.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "hone/core/thread/thread_pool.h"

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

// The first two CPUs of the affinity mask, or as many as there are.
std::vector<int> two_cpus() {
  const cpu_set_t mask = affinity();
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus.push_back(cpu);
  return cpus;
}

cpu_set_t mask_of(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &mask);
  return mask;
}

bool has_affinity(const cpu_set_t& mask) {
  const cpu_set_t now = affinity();
  return CPU_EQUAL(&now, &mask);
}

// Runs bodies on threads of their own, which may run on two CPUs.
class ThreadPlacementOnTwoCpus : public testing::Test {
 protected:
  void SetUp() override {
    if (cpus_.size() < 2) GTEST_SKIP() << "Only one CPU is usable.";
  }
  template <class Body>
  void run(const Body& body) {
    std::thread([&] {
      set_affinity(both_);
      body();
    }).join();
  }
  void run_only_on(int cpu) { set_affinity(mask_of({cpu})); }
  // How often `worker` of `workers` moves when it settles on the CPU where `earlier` put others.
  template <class Earlier>
  int count_moves(int workers, int worker, const Earlier& earlier) {
    int moves = 0;
    run([&] {
      for (int round = 0; round < kRounds; ++round) {
        const int cpu = ::sched_getcpu();
        ThreadPlacement placement(workers);
        run_only_on(cpu);
        earlier(placement);
        set_affinity(both_);
        placement.settle(worker);
        if (!has_affinity(both_)) ++other_masks_;
        if (::sched_getcpu() != cpu) ++moves;
      }
    });
    return moves;
  }

  int other_masks_ = 0;
  const std::vector<int> cpus_ = two_cpus();
  const cpu_set_t both_ = mask_of(cpus_);
};

TEST_F(ThreadPlacementOnTwoCpus, a_worker_leaves_the_cpu_of_another_and_keeps_its_mask) {
  const auto earlier = [](ThreadPlacement& placement) { placement.settle(0); };
  EXPECT_GE(count_moves(2, 1, earlier), kMostRounds);
  EXPECT_EQ(other_masks_, 0);
}

TEST_F(ThreadPlacementOnTwoCpus, a_worker_leaves_its_cpu_when_worker_0_comes_there) {
  const auto earlier = [](ThreadPlacement& placement) {
    placement.settle(1);
    placement.settle(0);
  };
  EXPECT_GE(count_moves(2, 1, earlier), kMostRounds);
}

TEST_F(ThreadPlacementOnTwoCpus, worker_0_stays_with_another) {
  const auto earlier = [](ThreadPlacement& placement) { placement.settle(1); };
  EXPECT_LE(count_moves(2, 0, earlier), kRounds - kMostRounds);
}

TEST_F(ThreadPlacementOnTwoCpus, the_cpu_of_a_sleeping_worker_is_free) {
  const auto earlier = [](ThreadPlacement& placement) {
    placement.settle(0);
    placement.leave(0);
  };
  EXPECT_LE(count_moves(2, 1, earlier), kRounds - kMostRounds);
}

TEST_F(ThreadPlacementOnTwoCpus, more_workers_than_cpus_stay_together) {
  const auto earlier = [](ThreadPlacement& placement) { placement.settle(0); };
  EXPECT_LE(count_moves(3, 1, earlier), kRounds - kMostRounds);
}

// Eight busy threads let a worker wait for the CPU it moves to, with a narrow mask.
TEST_F(ThreadPlacementOnTwoCpus, worker_0_widens_the_mask_of_a_worker_that_waits) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy(8);
  for (std::thread& thread : busy) {
    thread = std::thread([&] {
      run_only_on(cpus_[1]);
      while (!stop) {
      }
    });
  }
  int waited = 0, widened = 0;
  run([&] {
    run_only_on(cpus_[0]);
    for (int round = 0; round < 20; ++round) {
      ThreadPlacement placement(2);
      placement.settle(0);
      std::atomic<pid_t> id{0};
      std::atomic<bool> arrived{false};
      std::thread worker([&] {  // begins on the CPU of worker 0
        set_affinity(both_);
        id = ::gettid();
        placement.settle(1);
        arrived = true;
      });
      const auto worker_has = [&](const cpu_set_t& mask) {
        cpu_set_t now;
        CPU_ZERO(&now);
        return ::sched_getaffinity(id, sizeof now, &now) == 0 && CPU_EQUAL(&now, &mask);
      };
      while (!arrived && (id == 0 || !worker_has(mask_of({cpus_[1]})))) std::this_thread::yield();
      placement.settle(0);
      const bool wide = worker_has(both_);
      if (!arrived) {
        ++waited;
        if (wide) ++widened;
      }
      worker.join();
    }
  });
  stop = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_GT(waited, 0);
  EXPECT_EQ(widened, waited);
}

// Both threads of a pool are brought to one CPU, from which they may go.
TEST_F(ThreadPlacementOnTwoCpus, the_workers_of_a_pool_separate) {
  int apart = 0;
  run([&] {
    ThreadPool pool(2, /*spread=*/true);
    std::array<int, 2> seen{};
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
        set_affinity(both_);
      });
      on_both([&](int worker, int now) { seen[static_cast<std::size_t>(worker)] = now; });
      if (seen[0] != seen[1]) ++apart;
    }
  });
  EXPECT_GE(apart, kMostRounds);
}

}  // namespace
}  // namespace hone
