// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/log.h"
#include "hone/core/philox.h"
#include "hone/measure/measure.h"
#include "tests/support/scripted_clock.h"

namespace hone::measure {
namespace {

using test::ScriptedClock;

MeasureOptions fixed_rounds(Index rounds) {
  return {.min_samples = rounds, .max_samples = rounds, .max_seconds = 1e9};
}

Contestant takes(ScriptedClock& clock, std::string name, std::function<double()> seconds) {
  return {.name = std::move(name), .run = [&clock, seconds] { clock.advance(seconds()); }};
}

double normal(PhiloxStream& random) {
  return std::sqrt(-2 * std::log(random.uniform_double())) *
         std::cos(2 * std::numbers::pi * random.uniform_double());
}

TEST(Measurer, keeps_every_sample_and_reports_exact_percentiles) {
  ScriptedClock clock;
  const auto measurer = make_measurer(clock);
  int call = 0;
  const std::vector<Contestant> one{takes(clock, "ramp", [&] { return 1e-3 * ++call; })};
  MeasureOptions options = fixed_rounds(11);
  options.warm_up = 1;
  Index told = 0;
  options.on_round = [&](Index rounds) { EXPECT_EQ(rounds, ++told); };
  const Measurement measurement = measurer->measure(one, options);
  EXPECT_EQ(told, 11);
  ASSERT_EQ(measurement.seconds.size(), 1u);
  ASSERT_EQ(measurement.seconds[0].size(), 11u);
  for (int i = 0; i < 11; ++i) {
    EXPECT_NEAR(measurement.seconds[0][static_cast<std::size_t>(i)], 1e-3 * (i + 2), 1e-12);
  }
  const Spread spread = measurer->spread(measurement.seconds[0]);
  EXPECT_NEAR(spread.median, 7e-3, 1e-12);
  EXPECT_NEAR(spread.p10, 3e-3, 1e-12);
  EXPECT_NEAR(spread.p90, 11e-3, 1e-12);
  EXPECT_EQ(spread.n, 11);
}

TEST(Measurer, interleaves_in_one_order_nobody_behind_himself) {
  ScriptedClock clock;
  std::string order;
  std::vector<Contestant> three;
  for (const char* name : {"A", "B", "C"}) {
    three.push_back(takes(clock, name, [&order, name] { return order += name, 1e-3; }));
  }
  MeasureOptions options = fixed_rounds(4);
  options.warm_up = 2;
  make_measurer(clock)->measure(three, options);
  EXPECT_EQ(order,
            "ABCABC"
            "ABC"
            "ABC"
            "ABC"
            "ABC");
}

TEST(Measurer, does_not_time_the_preparation) {
  ScriptedClock clock;
  int prepared = 0;
  std::vector<Contestant> one{takes(clock, "work", [] { return 1e-3; })};
  one[0].prepare = [&] { ++prepared, clock.advance(5.0); };
  const auto measurement = make_measurer(clock)->measure(one, fixed_rounds(3));
  for (const double seconds : measurement.seconds[0]) EXPECT_NEAR(seconds, 1e-3, 1e-12);
  EXPECT_EQ(prepared, 5);  // two of the warm-up
}

TEST(Measurer, takes_the_seconds_of_a_contestant_that_times_itself) {
  ScriptedClock clock;
  Index calls = 0;
  std::vector<Contestant> one{takes(clock, "elsewhere", [&] { return ++calls, 1e-6; })};
  one[0].own_seconds = [&] { return static_cast<double>(calls); };
  const auto measurement = make_measurer(clock)->measure(one, fixed_rounds(3));
  EXPECT_EQ(measurement.seconds[0], (std::vector<double>{3, 4, 5}));  // behind two of the warm-up
}

TEST(Measurer, repeats_what_is_too_short_to_time) {
  ScriptedClock clock;
  Index calls = 0;
  const std::vector<Contestant> one{takes(clock, "short", [&] { return ++calls, 1e-6; })};
  const auto measurement = make_measurer(clock)->measure(one, fixed_rounds(3));
  for (const double seconds : measurement.seconds[0]) EXPECT_NEAR(seconds, 1e-6, 1e-9);
  EXPECT_EQ(calls, 2 + 3 * 20);
}

TEST(Measurer, stops_at_a_narrow_interval) {
  ScriptedClock clock;
  const std::vector<Contestant> steady{takes(clock, "steady", [] { return 1e-3; })};
  MeasureOptions options{.min_samples = 6, .max_samples = 100};
  EXPECT_EQ(make_measurer(clock)->measure(steady, options).seconds[0].size(), 6u);

  PhiloxStream random(1);
  const std::vector<Contestant> noisy{
      takes(clock, "noisy", [&] { return 1e-3 * (1 + random.uniform_double()); })};
  EXPECT_EQ(make_measurer(clock)->measure(noisy, options).seconds[0].size(), 100u);
}

TEST(Measurer, stops_when_time_is_up_but_not_before_the_least_number_of_samples) {
  ScriptedClock clock;
  PhiloxStream random(1);
  const std::vector<Contestant> slow{
      takes(clock, "slow", [&] { return 1 + random.uniform_double(); })};
  MeasureOptions options{.min_samples = 5, .max_samples = 1000, .max_seconds = 2};
  EXPECT_EQ(make_measurer(clock)->measure(slow, options).seconds[0].size(), 5u);
  options.max_seconds = 30;
  const auto rounds = make_measurer(clock)->measure(slow, options).seconds[0].size();
  EXPECT_GE(rounds, 15u);
  EXPECT_LE(rounds, 30u);
}

// Times with 4 % noise of their own on top of 2 % that a whole round shares.
struct NoisyPair {
  ScriptedClock clock;
  PhiloxStream random;
  double shared = 1;
  std::vector<Contestant> contestants;

  NoisyPair(std::uint64_t seed, double slow_down) : random(seed) {
    const auto sample = [this](double scale) {
      return 1e-3 * scale * shared * std::exp(0.04 * normal(random));
    };
    contestants = {takes(clock, "A", [=] { return sample(1); }),
                   takes(clock, "B", [=] { return sample(slow_down); })};
    contestants[0].prepare = [this] { shared = std::exp(0.02 * normal(random)); };
  }

  RatioInterval run() {
    const auto measurer = make_measurer(clock);
    const auto measurement = measurer->measure(contestants, fixed_rounds(60));
    return measurer->speedup(measurement, 0, 1);
  }
};

constexpr int kExperiments = 400;

// True coverage near 95 %: with 400 experiments the standard error is 1.1 %.
TEST(Measurer, says_tie_when_a_meets_itself) {
  set_log_level(LogLevel::Error);
  int ties = 0;
  for (int i = 0; i < kExperiments; ++i) {
    ties += NoisyPair(1000 + static_cast<std::uint64_t>(i), 1.0).run().is_tie();
  }
  EXPECT_GE(ties, kExperiments * 93 / 100);
  set_log_level(LogLevel::Info);
}

TEST(Measurer, finds_an_injected_slow_down_of_five_percent) {
  set_log_level(LogLevel::Error);
  int found = 0;
  for (int i = 0; i < kExperiments; ++i) {
    const RatioInterval ratio = NoisyPair(5000 + static_cast<std::uint64_t>(i), 1.05).run();
    found += !ratio.is_tie() && ratio.ratio > 1;
  }
  EXPECT_GE(found, kExperiments * 95 / 100);
  set_log_level(LogLevel::Info);
}

TEST(Measurer, reports_the_ratio_as_how_many_times_faster) {
  ScriptedClock clock;
  const auto measurer = make_measurer(clock);
  const std::vector<Contestant> two{takes(clock, "fast", [] { return 1e-3; }),
                                    takes(clock, "slow", [] { return 3e-3; })};
  const auto measurement = measurer->measure(two, fixed_rounds(5));
  EXPECT_DOUBLE_EQ(measurer->speedup(measurement, 0, 1).ratio, 3);
  EXPECT_DOUBLE_EQ(measurer->speedup(measurement, 1, 0).ratio, 1.0 / 3);
  EXPECT_THROW(measurer->speedup(measurement, 0, 2), Error);
}

TEST(Measurer, flags_drift) {
  set_log_level(LogLevel::Error);
  ScriptedClock clock;
  int call = 0;
  const std::vector<Contestant> warming{
      takes(clock, "warming", [&] { return call++ < 25 ? 1e-3 : 1.2e-3; })};
  const auto measurement = make_measurer(clock)->measure(warming, fixed_rounds(40));
  EXPECT_NEAR(measurement.drift, 0.2, 1e-9);
  set_log_level(LogLevel::Info);
}

TEST(Measurer, refuses_nonsense_and_lets_errors_through) {
  ScriptedClock clock;
  const auto measurer = make_measurer(clock);
  EXPECT_THROW(measurer->measure({}, {}), Error);
  const std::vector<Contestant> empty{{.name = "nothing"}};
  EXPECT_THROW(measurer->measure(empty, {}), Error);
  const std::vector<Contestant> good{takes(clock, "x", [] { return 1.0; })};
  EXPECT_THROW(measurer->measure(good, {.min_samples = 5, .max_samples = 4}), Error);
  const std::vector<Contestant> failing{
      {.name = "x", .run = [] { throw std::runtime_error("no"); }}};
  EXPECT_THROW(measurer->measure(failing, {}), std::runtime_error);
}

}  // namespace
}  // namespace hone::measure
