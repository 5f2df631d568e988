// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/prediction_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::task {
namespace {

using Labels = std::vector<Index>;

Labels draw(Index count, Index classes, std::uint64_t stream) {
  PhiloxStream random(7, stream);
  Labels out;
  for (Index i = 0; i < count; ++i) {
    out.push_back(static_cast<Index>(random.below(static_cast<std::uint32_t>(classes))));
  }
  return out;
}

TEST(ConfusionMatrix, counts_what_a_loop_counts_and_its_rows_sum_to_the_classes) {
  constexpr Index kClasses = 6;
  const Labels labels = draw(500, kClasses - 1, 0), predictions = draw(500, kClasses, 1);
  const ConfusionMatrix confusion(labels, predictions, kClasses);
  std::map<std::pair<Index, Index>, Index> pairs;
  std::map<Index, Index> images;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ++pairs[{labels[i], predictions[i]}];
    ++images[labels[i]];
  }
  for (Index label = 0; label < kClasses; ++label) {
    EXPECT_EQ(confusion.images_of(label), images[label]);
    for (Index other = 0; other < kClasses; ++other) {
      EXPECT_EQ(confusion.at(label, other), (pairs[{label, other}]));
    }
  }
}

// The square of this many classes would take 34 GB.
TEST(ConfusionMatrix, takes_as_many_classes_as_a_model_can_have) {
  constexpr Index kClasses = 65535;
  const ConfusionMatrix confusion(Labels{0, kClasses - 1}, Labels{kClasses - 1, kClasses - 1},
                                  kClasses);
  EXPECT_EQ(confusion.at(0, kClasses - 1), 1);
  EXPECT_EQ(confusion.at(kClasses - 1, 0), 0);
  EXPECT_EQ(balanced_accuracy(confusion), 0.5);
  EXPECT_EQ(most_confused(confusion, 10).size(), 1u);
}

TEST(ConfusionMatrix, refuses_labels_out_of_range_and_other_lengths) {
  EXPECT_THROW(ConfusionMatrix(Labels{2}, Labels{0}, 2), Error);
  EXPECT_THROW(ConfusionMatrix(Labels{0}, Labels{-1}, 2), Error);
  EXPECT_THROW(ConfusionMatrix(Labels{0}, Labels{0, 1}, 2), Error);
  EXPECT_THROW(ConfusionMatrix(Labels{}, Labels{}, 0), Error);
}

// Nine of ten of the first class and one of two of the second; the third does not occur.
TEST(BalancedAccuracy, is_the_mean_over_the_classes_that_occur) {
  Labels labels(10, 0), predictions(10, 0);
  predictions[3] = 2;
  labels.insert(labels.end(), {1, 1});
  predictions.insert(predictions.end(), {1, 0});
  EXPECT_DOUBLE_EQ(balanced_accuracy({labels, predictions, 3}), (0.9 + 0.5) / 2);
}

TEST(MostConfused, orders_by_number_then_by_label) {
  const Labels labels{0, 0, 0, 1, 1, 2, 2, 2}, predictions{1, 1, 0, 2, 2, 0, 1, 2};
  const auto pairs = most_confused({labels, predictions, 3}, 3);
  ASSERT_EQ(pairs.size(), 3u);
  const std::vector<Labels> expected{{0, 1, 2}, {1, 2, 2}, {2, 0, 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((Labels{pairs[i].label, pairs[i].prediction, pairs[i].images}), expected[i]);
  }
  EXPECT_EQ(most_confused({labels, predictions, 3}, 10).size(), 4u) << "as many as there are";
  EXPECT_TRUE(most_confused({labels, labels, 3}, 10).empty());
}

double error_of_bins(const std::vector<double>& confidences, const std::vector<std::uint8_t>& right,
                     Index bins) {
  return calibration_error(calibration_bins(confidences, right, bins));
}

TEST(Calibration, has_the_error_of_the_closed_form) {
  EXPECT_NEAR(error_of_bins({0.9, 0.6}, {1, 0}, 15), 0.35, 1e-12);
  EXPECT_NEAR(error_of_bins({0.9, 0.6}, {1, 0}, 1), 0.25, 1e-12) << "|.75 - .5|";
  EXPECT_NEAR(error_of_bins({1, 1, 1, 1}, {1, 1, 1, 0}, 15), 0.25, 1e-12);
  EXPECT_EQ(error_of_bins({}, {}, 15), 0);
}

TEST(Calibration, bins_take_their_upper_end_and_the_first_takes_0) {
  const auto bins = calibration_bins(std::vector<double>{0, 0.25, 0.26, 0.5, 0.75, 1},
                                     std::vector<std::uint8_t>(6, 1), 4);
  ASSERT_EQ(bins.size(), 4u);
  EXPECT_EQ(bins[0].images, 2);
  EXPECT_EQ(bins[1].images, 2);
  EXPECT_EQ(bins[2].images, 1);
  EXPECT_EQ(bins[3].images, 1);
  EXPECT_DOUBLE_EQ(bins[0].confidence, 0.125);
  EXPECT_EQ(bins[0].accuracy, 1);
}

TEST(Calibration, agrees_with_a_loop_over_bins) {
  constexpr Index kBins = 7;
  PhiloxStream random(3);
  std::vector<double> confidences;
  std::vector<std::uint8_t> right;
  for (int i = 0; i < 400; ++i) {
    confidences.push_back(random.uniform_double());
    right.push_back(random.below(3) == 0 ? 1 : 0);
  }
  double expected = 0;
  for (Index bin = 0; bin < kBins; ++bin) {
    double confidence = 0, accuracy = 0;
    for (std::size_t i = 0; i < confidences.size(); ++i) {
      const bool is_in = confidences[i] > static_cast<double>(bin) / kBins &&
                         confidences[i] <= static_cast<double>(bin + 1) / kBins;
      confidence += is_in ? confidences[i] : 0;
      accuracy += is_in ? right[i] : 0;
    }
    expected += std::abs(confidence - accuracy) / 400;
  }
  EXPECT_NEAR(error_of_bins(confidences, right, kBins), expected, 1e-12);
}

TEST(Calibration, refuses_what_is_no_probability) {
  EXPECT_THROW(error_of_bins({1.5}, {1}, 15), Error);
  EXPECT_THROW(error_of_bins({std::nan("")}, {1}, 15), Error);
  EXPECT_THROW(error_of_bins({0.5}, {1}, 0), Error);
  EXPECT_THROW(error_of_bins({0.5}, {1, 0}, 15), Error);
}

}  // namespace
}  // namespace hone::task
