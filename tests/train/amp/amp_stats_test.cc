// SPDX-License-Identifier: Apache-2.0
// What a run observed, and the scale it advises.
#include "hone/train/amp/amp_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/train/interop.h"
#include "tests/support/error_of.h"
#include "tests/support/scripted_clock.h"

namespace hone::amp {
namespace {

using hone::test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

GradientStatistics statistics_of(const std::vector<float>& values, double scale = 1) {
  const Tensors gradients{torch::tensor(values)};
  return measure_gradients(gradients, scale);
}

TEST(AmpStats, analyses_a_history_with_one_overflow) {
  AmpStats stats("emulated fp16 on cpu");
  stats.record({0, 65536, false, true});
  stats.record({1, 65536, true, false});
  stats.record({2, 32768, false, true});
  stats.record({3, 32768, false, true});
  const AmpAnalysis analysis = analyze(stats);
  EXPECT_EQ(analysis.overflow_rate, 0.25);
  EXPECT_EQ(analysis.average_scale, 49'152);
  EXPECT_EQ(analysis.scale_variance, 268'435'456);
  EXPECT_DOUBLE_EQ(analysis.scale_stability.value(), 0.9);
  EXPECT_EQ(analysis.skipped_fraction, 0.25);
  EXPECT_EQ(analysis.final_scale, 32'768);
  EXPECT_EQ(analysis.steps_between_overflows, std::nullopt);
  EXPECT_EQ(analysis.precision, "emulated fp16 on cpu");
}

TEST(AmpStats, figures_without_steps_are_null) {
  const Json json = to_json(analyze(AmpStats("inactive: not requested")));
  for (const char* key : {"overflow_rate", "skipped_fraction", "average_scale", "scale_variance",
                          "scale_stability", "final_scale", "steps_between_overflows",
                          "underflow_fraction", "subnormal_fraction", "error_norm"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_EQ(json["steps"], 0);
  EXPECT_EQ(json["precision"], "inactive: not requested");
}

TEST(AmpStats, history_holds_the_scale_in_force_and_phases_are_timed_apart) {
  test::ScriptedClock clock;
  torch::Tensor param = torch::zeros({3}).requires_grad_();
  torch::optim::SGD optimizer(Tensors{param}, torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  AmpStats stats("emulated fp16 on cpu", at::kCPU, clock);
  for (Index t = 0; t < 6; ++t) {
    {
      const auto timer = stats.time(AmpPhase::Forward);
      scaler.scale(torch::ones({}));
      clock.advance(1);
    }
    {
      const auto timer = stats.time(AmpPhase::Backward);
      param.mutable_grad() = torch::full({3}, t == 1 || t == 4 ? kInfinity : 1.0f);
      clock.advance(2);
    }
    const auto timer = stats.time(AmpPhase::Optimizer);
    scaler.step(optimizer);
    stats.record(t, scaler.update());
    clock.advance(4);
  }
  std::vector<double> scales;
  for (const AmpStep& step : stats.history()) {
    scales.push_back(step.scale);
    EXPECT_EQ(step.found_inf, step.step == 1 || step.step == 4);
    EXPECT_EQ(step.stepped, !step.found_inf);
  }
  EXPECT_THAT(scales, ElementsAre(8, 8, 4, 4, 8, 4)) << "not the one after the update";
  const AmpAnalysis analysis = analyze(stats);
  EXPECT_DOUBLE_EQ(analysis.forward_seconds, 6);
  EXPECT_DOUBLE_EQ(analysis.backward_seconds, 12);
  EXPECT_DOUBLE_EQ(analysis.optimizer_seconds, 24);
  EXPECT_EQ(analysis.steps_between_overflows, 3);
  EXPECT_EQ(analysis.overflow_count, 2);
}

TEST(AmpStats, adds_up_what_fp16_does_to_gradients_and_leaves_overflowed_ones_out) {
  AmpStats stats("emulated fp16 on cpu");
  const float third = 1.0f / 3, error = third - 0.333251953125f;
  stats.observe(statistics_of({0, 1, third, 1e-9f, 1e-6f}));
  stats.observe(statistics_of({2, kInfinity}));
  stats.observe(statistics_of({-4, 4}));
  const AmpAnalysis analysis = analyze(stats);
  EXPECT_DOUBLE_EQ(analysis.underflow_fraction.value(), 1.0 / 6);
  EXPECT_DOUBLE_EQ(analysis.subnormal_fraction.value(), 1.0 / 6);
  const double of_small = static_cast<double>(1e-6f) - 17 * 0x1p-24;
  EXPECT_NEAR(analysis.error_norm.value(), std::hypot(double{error}, 1e-9, of_small), 1e-12);
  EXPECT_NEAR(analysis.relative_error.value(),
              analysis.error_norm.value() / std::sqrt(33 + double{third} * third), 1e-9);
  const Json histogram = to_json(analysis)["exponent_histogram"];
  EXPECT_EQ(histogram.dump(), "[[-29,1],[-19,1],[-1,1],[0,1],[2,2]]");
}

TEST(AmpStats, notes_peaks_of_memory) {
  AmpStats stats("cpu BFloat16");
  stats.note_memory(1000);
  stats.note_memory(10);
  EXPECT_EQ(stats.allocator_peak_bytes(), 1000);
  EXPECT_GT(stats.peak_rss_bytes(), Index{1} << 20);
}

TEST(MeasureGradients, counts_every_element_once_in_any_type_and_layout_for_any_threads) {
  torch::manual_seed(6);
  const torch::Tensor large = torch::exp(torch::randn({700, 801}) * 10);
  const Tensors gradients{large,
                          torch::randn({5}),
                          torch::Tensor(),
                          large.t(),
                          large.slice(0, 1, 99, 3),
                          torch::randn({9}, at::kDouble),
                          torch::randn({9}).to(at::kBFloat16)};
  Index elements = 0;
  for (const torch::Tensor& gradient : gradients)
    elements += gradient.defined() ? gradient.numel() : 0;
  const GradientStatistics two = measure_gradients(gradients, 1024, 0.5);
  EXPECT_EQ(std::accumulate(two.bins.begin(), two.bins.end(), two.zeros + two.nonfinite), elements);
  EXPECT_EQ(two.largest, 0.5f * large.max().item<float>());
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const GradientStatistics one = measure_gradients(gradients, 1024, 0.5);
  at::set_num_threads(threads);
  EXPECT_EQ(one.bins, two.bins);
  EXPECT_EQ(one.square_sum, two.square_sum);
  EXPECT_EQ(one.error_square_sum, two.error_square_sum);
}

// What the histogram says about a scale is what rounding at that scale does.
TEST(MeasureGradients, the_histogram_predicts_underflow_exactly_at_every_power_of_two) {
  torch::manual_seed(7);
  const Tensors gradients{torch::exp2(torch::rand({50'000}) * 40 - 45),
                          torch::exp2(torch::arange(-45, 0, torch::kFloat))};
  const GradientStatistics histogram = measure_gradients(gradients, 1);
  for (int exponent = 0; exponent <= 24; ++exponent) {
    const GradientStatistics there = measure_gradients(gradients, std::ldexp(1.0, exponent));
    EXPECT_EQ(underflow_fraction(histogram, exponent),
              static_cast<double>(there.underflows) / 50'045)
        << exponent;
  }
}

TEST(RecommendScale, takes_the_floor_power_of_two) {
  EXPECT_EQ(recommend_scale(statistics_of({1.2f}), 1, 0).scale, 32'768);
  EXPECT_EQ(recommend_scale(statistics_of({1.2f}), 1).scale, 16'384) << "one bit of headroom";
  EXPECT_EQ(recommend_scale(statistics_of({65504}), 1, 0).scale, 1);
  EXPECT_EQ(recommend_scale(statistics_of({65520}), 1, 0).scale, 0.5);
}

TEST(RecommendScale, fits_the_largest_element_and_wastes_no_bit_on_random_inputs) {
  PhiloxStream random(15);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t exponent = random.below(255);
    const float largest = std::bit_cast<float>((exponent << 23) | (random() & 0x7fffffu));
    const int headroom = static_cast<int>(random.below(3));
    if (largest == 0) continue;
    const double scale =
        recommend_scale(statistics_of({largest, -largest / 2, largest / 3}), 1, headroom).scale;
    const double taken = scale * std::ldexp(double{largest}, headroom);
    ASSERT_LE(taken, 65'504) << largest;
    ASSERT_TRUE(2 * taken > 65'504 || scale == 0x1p126) << largest;
    int unused = 0;
    ASSERT_EQ(std::frexp(scale, &unused), 0.5) << "a power of two";
  }
}

TEST(RecommendScale, zeros_nan_and_nothing_are_defined) {
  EXPECT_EQ(recommend_scale(statistics_of({0, 0}), 4096).scale, 4096);
  EXPECT_EQ(recommend_scale({}, 4096).scale, 4096);
  EXPECT_EQ(recommend_scale(statistics_of({1e-6f}), 1).scale, 0x1p34) << "it raises the scale, too";
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_THAT(
        error_of([&] {
          recommend_scale(statistics_of({1, bad}), 1);
        }),
        HasSubstr("[recommend_scale] expected finite gradients, got 1 that are inf or NaN"));
  }
  EXPECT_THAT(error_of([&] { recommend_scale({}, 1, -1); }), HasSubstr("headroom_bits"));
}

TEST(RecommendScale, the_curve_falls_to_the_advised_scale_and_marks_what_overflows) {
  torch::manual_seed(8);
  const Tensors gradients{torch::exp(torch::rand({20'000}) * std::log(1e8)) * 1e-9};
  const ScaleAdvice advice = recommend_scale(measure_gradients(gradients, 1), 1, 0);
  ASSERT_EQ(advice.curve.size(), 25u);
  for (std::size_t i = 1; i < advice.curve.size(); ++i) {
    EXPECT_LE(advice.curve[i].underflow_fraction, advice.curve[i - 1].underflow_fraction);
    EXPECT_EQ(advice.curve[i].fits, advice.curve[i].scale <= advice.scale);
  }
  EXPECT_GT(advice.curve.front().underflow_fraction, 0.15);
}

TEST(MeasureGradients, bad_arguments_are_refused) {
  const Tensors gradients{torch::ones({2})};
  EXPECT_THAT(error_of([&] { measure_gradients(gradients, 0); }), HasSubstr("as scale"));
  EXPECT_THAT(error_of([&] { measure_gradients(gradients, 1, 1e39); }), HasSubstr("as factor"));
  const Tensors sparse{torch::ones({2}).to_sparse()};
  EXPECT_THAT(error_of([&] { measure_gradients(sparse, 1); }), HasSubstr("dense gradients"));
}

}  // namespace
}  // namespace hone::amp
