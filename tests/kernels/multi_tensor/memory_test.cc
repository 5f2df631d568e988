// SPDX-License-Identifier: Apache-2.0
// What a step allocates and releases again, by a count in operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"

namespace {
// Live and peak bytes from operator new while counting.
std::atomic<bool> g_counting{false};
std::atomic<long long> g_live{0}, g_peak{0};

constexpr std::size_t kHeader = 64;  // keeps the alignment of malloc

void* allocate(std::size_t bytes) {
  auto* block = static_cast<std::size_t*>(std::malloc(bytes + kHeader));
  if (block == nullptr) throw std::bad_alloc();
  block[0] = bytes;
  block[1] = g_counting ? 1 : 0;
  if (block[1] != 0) {
    const long long live = g_live += static_cast<long long>(bytes);
    long long peak = g_peak;
    while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
    }
  }
  return reinterpret_cast<std::byte*>(block) + kHeader;
}

void release(void* pointer) {
  if (pointer == nullptr) return;
  auto* block = reinterpret_cast<std::size_t*>(static_cast<std::byte*>(pointer) - kHeader);
  if (block[1] != 0) g_live -= static_cast<long long>(block[0]);
  std::free(block);
}
}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void operator delete(void* pointer) noexcept { release(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { release(pointer); }

namespace hone::kernels {
namespace {

using hone::test::TensorSet;
using test::DoubleRule;

constexpr double kMeasureOnly = 1e30;  // a norm that nothing reaches

// Bytes that the second step of a rule holds at most, and that its report says it held.
struct Held {
  long long peak = 0, reported = 0;
};
Held measure(const DoubleRule& rule, const std::vector<Index>& sizes, const StepControl& control,
             Executor& executor) {
  TensorSet set(sizes, rule.slots);
  std::vector<double> s(sizes.size(), 0.0);
  const MultiTensorPlan plan = set.plan();
  rule.step(plan, s, control, executor);
  g_live = g_peak = 0;
  g_counting = true;
  const StepReport report = rule.step(plan, s, control, executor);
  g_counting = false;
  EXPECT_EQ(g_live, 0) << rule.name;
  EXPECT_TRUE(report.stepped);
  return {g_peak, report.temporary_bytes};
}

// 64 B per tensor and 24 B per chunk, without the slack of a MiB per worker; TAM with coupled decay
// has six sums per chunk instead of three, and needs some of that slack.
void expect_within_bar(const DoubleRule& rule, const std::vector<Index>& sizes, bool coupled_tam,
                       Executor& executor) {
  const auto tensors = static_cast<Index>(sizes.size());
  const Index chunks = tensors * ceil_div(sizes.front(), kChunkElements);
  const long long own = 64 * tensors + (coupled_tam ? 48 : 24) * chunks;
  const long long bar = 64 * tensors + 24 * tensors * sizes.front() / kChunkElements +
                        Index{executor.workers()} * (1 << 20);
  for (const double clip : {0.0, kMeasureOnly}) {
    const Held held = measure(rule, sizes, {.clip_norm = clip}, executor);
    EXPECT_LE(held.reported, own) << rule.name;
    EXPECT_LE(held.peak, bar) << rule.name;
    // What the report says is what was allocated (the pool may add a few hundred bytes).
    EXPECT_GE(held.peak, held.reported) << rule.name;
    EXPECT_LE(held.peak, held.reported + 1024) << rule.name;
  }
}

TEST(Memory, temporaries_of_every_rule_stay_within_the_bar) {
  ThreadPool pool(2);
  std::vector<DoubleRule> rules = test::double_rules();
  rules.push_back(test::lion_double_rule());
  for (const DoubleRule& rule : rules) {
    const std::string_view name = rule.name;
    const bool coupled = name == "tam" || name == "adatam";
    expect_within_bar(rule, std::vector<Index>(24, 65'536), coupled, pool);
    expect_within_bar(rule, std::vector<Index>(500, 1024), coupled, pool);
    if (name != "tam" && name != "tam_decoupled" && name != "adamw") continue;
    expect_within_bar(rule, std::vector<Index>(6, 1'048'576), coupled, pool);
  }
}

// Nothing that grows with the parameters: a checked step has a scratch per worker besides.
TEST(Memory, a_checked_step_adds_at_most_a_mebibyte_per_worker) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : test::double_rules()) {
    for (const Index n : {65'536, 1'048'576}) {
      const Held held = measure(rule, {n, n, n}, {.checked = true}, pool);
      const Index bar = 64 * 3 + 24 * 3 * n / kChunkElements + 1024 + 2 * (1 << 20);
      EXPECT_LE(held.reported, bar) << rule.name;
      EXPECT_LE(held.peak, bar) << rule.name;
    }
  }
}

}  // namespace
}  // namespace hone::kernels
