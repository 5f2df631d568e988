// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/measure/cpu_load.h"
#include "hone/measure/statistics.h"

namespace hone::measure {
namespace {

TEST(Quantile, interpolates_between_order_statistics) {
  const std::vector<double> samples{4, 1, 3, 2};
  EXPECT_EQ(median(samples), 2.5);
  EXPECT_EQ(quantile(samples, 0), 1);
  EXPECT_EQ(quantile(samples, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.1), 1.3);
  EXPECT_DOUBLE_EQ(quantile(samples, 0.9), 3.7);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
}

TEST(Quantile, is_exact_on_a_hundred_and_one_steps) {
  std::vector<double> samples(101);
  std::iota(samples.rbegin(), samples.rend(), 0.0);
  for (int percent = 0; percent <= 100; ++percent) {
    EXPECT_NEAR(quantile(samples, percent / 100.0), percent, 1e-9);
  }
}

TEST(Quantile, of_nothing_is_an_error) {
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile(std::vector<double>{1}, 1.5), Error);
}

TEST(Spread, holds_median_and_tenths) {
  const Spread spread = spread_of(std::vector<double>{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  EXPECT_EQ(spread.median, 50);
  EXPECT_EQ(spread.p10, 10);
  EXPECT_EQ(spread.p90, 90);
  EXPECT_EQ(spread.n, 11);
}

TEST(MedianHalfWidth, is_zero_without_noise_and_covers_everything_with_few_samples) {
  EXPECT_EQ(median_half_width(std::vector<double>(20, 3.0)), 0);
  EXPECT_DOUBLE_EQ(median_half_width(std::vector<double>{9, 10, 11}), 0.1);
}

// 2000 draws of 25 uniforms: the interval must hold the true median in 93 to 99 % of them (error
// probability of this test below 1e-4 for any true coverage in 94 to 98 %).
TEST(MedianHalfWidth, interval_covers_the_true_median) {
  PhiloxStream random(5);
  int covered = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<double> samples(25);
    for (double& sample : samples) sample = 1 + random.uniform_double();
    const double half = median_half_width(samples) * median(samples);
    covered += std::abs(median(samples) - 1.5) <= half;
  }
  EXPECT_GE(covered, 1860);
  EXPECT_LE(covered, 1990);
}

TEST(BootstrapRatio, of_exact_timings_is_exact) {
  const std::vector<double> fast(12, 1.0), slow(12, 1.5);
  const RatioInterval interval = bootstrap_ratio(fast, slow, 1);
  EXPECT_EQ(interval.ratio, 1.5);
  EXPECT_EQ(interval.low, 1.5);
  EXPECT_EQ(interval.high, 1.5);
  EXPECT_FALSE(interval.is_tie());
  EXPECT_TRUE(bootstrap_ratio(fast, fast, 1).is_tie());
}

TEST(BootstrapRatio, pairs_cancel_what_both_have_in_common) {
  PhiloxStream random(7);
  std::vector<double> ours, theirs;
  for (int round = 0; round < 40; ++round) {
    const double machine = 1 + random.uniform_double();  // both slow down by up to 2x, together
    ours.push_back(machine);
    theirs.push_back(1.03 * machine);
  }
  const RatioInterval interval = bootstrap_ratio(ours, theirs, 1);
  EXPECT_NEAR(interval.low, 1.03, 1e-9);
  EXPECT_NEAR(interval.high, 1.03, 1e-9);
}

TEST(BootstrapRatio, same_seed_gives_the_same_interval) {
  PhiloxStream random(9);
  std::vector<double> ours, theirs;
  for (int round = 0; round < 20; ++round) {
    ours.push_back(1 + random.uniform_double());
    theirs.push_back(1 + random.uniform_double());
  }
  const RatioInterval a = bootstrap_ratio(ours, theirs, 3), b = bootstrap_ratio(ours, theirs, 3);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_NE(a.low, bootstrap_ratio(ours, theirs, 4).low);
  EXPECT_THROW(bootstrap_ratio(ours, std::vector<double>{1}, 1), Error);
}

TEST(Drift, compares_tens_of_rounds_with_the_first_ten) {
  std::vector<double> samples(30, 2.0);
  EXPECT_EQ(drift_of(samples), 0);
  std::fill(samples.begin() + 20, samples.end(), 2.5);
  EXPECT_DOUBLE_EQ(drift_of(samples), 0.25);
  EXPECT_EQ(drift_of(std::vector<double>(19, 1.0)), 0);
}

TEST(BusySeconds, are_read_from_proc_stat) {
  // user nice system idle iowait irq softirq steal guest guest_nice
  const auto busy = parse_busy_seconds("cpu  100 20 30 9000 500 4 6 40 7 8\ncpu0 1 2 3", 100);
  ASSERT_TRUE(busy.has_value());
  EXPECT_DOUBLE_EQ(*busy, 2.0);
  EXPECT_FALSE(parse_busy_seconds("", 100).has_value());
  EXPECT_FALSE(parse_busy_seconds("cpu 1 2 x", 100).has_value());
  EXPECT_FALSE(parse_busy_seconds("intr 1 2 3 4 5 6 7 8 9", 100).has_value());
}

TEST(ForeignLoad, does_not_count_this_process) {
  const auto busy = [] {
    std::ifstream file("/proc/stat");
    std::string line;
    std::getline(file, line);
    return parse_busy_seconds(line, static_cast<double>(::sysconf(_SC_CLK_TCK))).value_or(0);
  };
  const double before = busy();
  const auto begin = std::chrono::steady_clock::now();
  const ForeignLoad load;
  const std::clock_t own = std::clock();
  while (std::clock() - own < CLOCKS_PER_SEC / 2) {
  }
  const double cpus = load.cpus();
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(cpus, 0);
  EXPECT_LE(cpus * elapsed, std::max(0.0, busy() - before - 0.45) + 0.1);
}

}  // namespace
}  // namespace hone::measure
