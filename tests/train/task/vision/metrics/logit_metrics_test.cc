// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/logit_metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::task {
namespace {

using torch::Tensor;

Tensor normal_logits(Index images, Index classes, double scale, std::int64_t seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return scale * at::randn({images, classes}, at::kDouble);
}

// Labels drawn from softmax(logits): these logits are calibrated.
std::vector<Index> draw_labels(const Tensor& logits, std::uint64_t seed) {
  const Tensor shares = logits.softmax(1);
  PhiloxStream random(seed);
  std::vector<Index> labels;
  for (Index i = 0; i < shares.size(0); ++i) {
    double left = random.uniform_double();
    Index label = 0;
    while (label + 1 < shares.size(1)) {
      left -= shares[i][label].item<double>();
      if (left < 0) break;
      ++label;
    }
    labels.push_back(label);
  }
  return labels;
}

TEST(TopAccuracy, agrees_with_sorting) {
  const Tensor logits = normal_logits(200, 9, 1, 1);
  const std::vector<Index> labels = draw_labels(logits, 2);
  for (const Index k : {1, 2, 5, 9, 50}) {
    double right = 0;
    for (Index i = 0; i < 200; ++i) {
      std::vector<Index> order(9);
      for (Index c = 0; c < 9; ++c) order[static_cast<std::size_t>(c)] = c;
      std::ranges::sort(order, [&](Index a, Index b) {
        return logits[i][a].item<double>() > logits[i][b].item<double>();
      });
      const auto place = std::ranges::find(order, labels[static_cast<std::size_t>(i)]);
      right += place - order.begin() < k ? 1 : 0;
    }
    EXPECT_DOUBLE_EQ(top_accuracy(logits, labels, k), right / 200) << k;
  }
}

TEST(TopAccuracy, of_equal_logits_the_first_class_is_predicted) {
  const Tensor logits = at::zeros({3, 4});
  const std::vector<Index> labels{0, 1, 3};
  EXPECT_EQ(predict_classes(logits), (std::vector<Index>{0, 0, 0}));
  EXPECT_DOUBLE_EQ(top_accuracy(logits, labels, 1), 1.0 / 3);
  EXPECT_DOUBLE_EQ(top_accuracy(logits, labels, 2), 2.0 / 3);
  EXPECT_DOUBLE_EQ(top_accuracy(logits, labels, 4), 1);
}

TEST(MeanNll, is_the_logarithm_of_the_classes_for_equal_logits_and_exact_for_large_ones) {
  EXPECT_NEAR(mean_nll(at::full({2, 5}, 3.0), std::vector<Index>{0, 4}), std::log(5), 1e-12);
  const Tensor large = at::tensor({1000.0, 0.0, 1000.0, 0.0}, at::kDouble).view({2, 2});
  EXPECT_NEAR(mean_nll(large, std::vector<Index>{0, 1}), 500, 1e-9);
  const Tensor logits = normal_logits(50, 4, 2, 3);
  const std::vector<Index> labels = draw_labels(logits, 4);
  double expected = 0;
  for (Index i = 0; i < 50; ++i) {
    double sum = 0;
    for (Index c = 0; c < 4; ++c) sum += std::exp(logits[i][c].item<double>());
    expected += std::log(sum) - logits[i][labels[static_cast<std::size_t>(i)]].item<double>();
  }
  EXPECT_NEAR(mean_nll(logits, labels), expected / 50, 1e-12);
}

TEST(Temperature, of_calibrated_logits_is_1_and_scales_with_them) {
  const Tensor logits = normal_logits(8000, 6, 1.5, 5);
  const std::vector<Index> labels = draw_labels(logits, 6);
  const double one = fit_temperature(logits, labels);
  EXPECT_NEAR(one, 1, 0.05);
  for (const double scale : {0.25, 3.0, 20.0}) {
    EXPECT_NEAR(fit_temperature(scale * logits, labels), scale * one, 1e-6 * scale);
  }
}

TEST(Temperature, is_the_minimum_of_a_scan) {
  const Tensor logits = normal_logits(300, 5, 4, 7);
  const std::vector<Index> labels = draw_labels(0.5 * logits, 8);
  const double found = fit_temperature(logits, labels);
  const double least = mean_nll(logits / found, labels);
  for (double temperature = 0.05; temperature < 50; temperature *= 1.01) {
    EXPECT_LE(least, mean_nll(logits / temperature, labels) + 1e-12) << temperature;
  }
  EXPECT_LT(least, mean_nll(logits / (1.02 * found), labels));
  EXPECT_LT(least, mean_nll(logits / (0.98 * found), labels));
}

TEST(Temperature, ends_at_its_bounds) {
  const Tensor logits = at::eye(4, at::kDouble);
  EXPECT_EQ(fit_temperature(logits, std::vector<Index>{0, 1, 2, 3}), kLeastTemperature);
  EXPECT_EQ(fit_temperature(logits, std::vector<Index>{1, 2, 3, 0}), kMostTemperature);
}

TEST(Calibration, of_calibrated_logits_has_almost_no_error) {
  const Tensor logits = normal_logits(20000, 5, 1.5, 9);
  const std::vector<Index> labels = draw_labels(logits, 10);
  const Confidences found = confidences_of(logits, labels);
  EXPECT_LT(calibration_error(calibration_bins(found.confidences, found.right, 15)), 0.02);
  const Confidences sure = confidences_of(logits, labels, /*temperature=*/0.3);
  EXPECT_GT(calibration_error(calibration_bins(sure.confidences, sure.right, 15)), 0.1);
  EXPECT_EQ(found.right, sure.right) << "a temperature changes no prediction";
}

// The images of even index say nothing about the others here: they are calibrated, the others have
// labels that contradict their logits.
TEST(TemperatureScaling, is_fitted_on_even_images_and_judged_on_odd_ones) {
  const Tensor logits = normal_logits(4000, 5, 2, 11);
  std::vector<Index> labels = draw_labels(logits, 12);
  const TemperatureScaling honest = scale_temperature(3 * logits, labels, 15);
  EXPECT_NEAR(honest.temperature, 3, 0.3);
  EXPECT_EQ(honest.images, 2000);
  EXPECT_LT(honest.scaled_error, 0.4 * honest.error);
  const std::vector<Index> predicted = predict_classes(logits);
  for (std::size_t i = 1; i < labels.size(); i += 2) labels[i] = (predicted[i] + 1) % 5;
  const TemperatureScaling odd = scale_temperature(3 * logits, labels, 15);
  EXPECT_DOUBLE_EQ(odd.temperature, honest.temperature);
  EXPECT_GT(odd.scaled_error, 0.5) << "never right, and still sure";
  EXPECT_THROW(scale_temperature(at::zeros({1, 3}), std::vector<Index>{0}, 15), Error);
}

TEST(LogitMetrics, refuse_what_is_no_matrix_of_logits) {
  const std::vector<Index> one{0};
  EXPECT_THROW(mean_nll(Tensor(), one), Error);
  EXPECT_THROW(mean_nll(at::zeros({3}), one), Error);
  EXPECT_THROW(mean_nll(at::zeros({0, 3}), {}), Error);
  EXPECT_THROW(mean_nll(at::zeros({1, 3}, at::kLong), one), Error);
  EXPECT_THROW(mean_nll(at::zeros({2, 3}), one), Error);
  EXPECT_THROW(top_accuracy(at::zeros({1, 3}), std::vector<Index>{3}, 1), Error);
  EXPECT_THROW(top_accuracy(at::zeros({1, 3}), std::vector<Index>{-1}, 1), Error);
  EXPECT_THROW(top_accuracy(at::zeros({1, 3}), one, 0), Error);
  EXPECT_THROW(confidences_of(at::zeros({1, 3}), one, 0), Error);
}

}  // namespace
}  // namespace hone::task
