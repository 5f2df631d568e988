// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/metrics/prediction_metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "hone/core/check.h"

namespace hone::task {

ConfusionMatrix::ConfusionMatrix(std::span<const Index> labels, std::span<const Index> predictions,
                                 Index classes)
    : classes_(classes) {
  HONE_CHECK(classes > 0, "confusion matrix", "at least one class", classes);
  HONE_CHECK(labels.size() == predictions.size(), "confusion matrix",
             concat(labels.size(), " predictions"), predictions.size());
  images_.resize(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto [low, high] = std::minmax(labels[i], predictions[i]);
    HONE_CHECK(low >= 0 && high < classes, "confusion matrix", concat("classes below ", classes),
               low < 0 ? low : high);
    ++counts_[{labels[i], predictions[i]}];
    ++images_[static_cast<std::size_t>(labels[i])];
  }
}

Index ConfusionMatrix::at(Index label, Index prediction) const {
  const auto found = counts_.find({label, prediction});
  return found == counts_.end() ? 0 : found->second;
}

double balanced_accuracy(const ConfusionMatrix& confusion) {
  double sum = 0;
  Index occurring = 0;
  for (Index label = 0; label < confusion.classes(); ++label) {
    const Index images = confusion.images_of(label);
    if (images == 0) continue;
    sum += static_cast<double>(confusion.at(label, label)) / static_cast<double>(images);
    ++occurring;
  }
  return occurring > 0 ? sum / static_cast<double>(occurring) : 0;
}

std::vector<ConfusedPair> most_confused(const ConfusionMatrix& confusion, Index limit) {
  std::vector<ConfusedPair> pairs;
  for (const auto& [pair, images] : confusion.counts()) {
    if (pair.first != pair.second) pairs.push_back({pair.first, pair.second, images});
  }
  std::ranges::stable_sort(pairs, std::ranges::greater(), &ConfusedPair::images);
  if (static_cast<Index>(pairs.size()) > limit) pairs.resize(static_cast<std::size_t>(limit));
  return pairs;
}

std::vector<CalibrationBin> calibration_bins(std::span<const double> confidences,
                                             std::span<const std::uint8_t> right, Index bins) {
  HONE_CHECK(bins > 0, "calibration", "at least one bin", bins);
  HONE_CHECK(confidences.size() == right.size(), "calibration",
             concat(confidences.size(), " outcomes"), right.size());
  std::vector<CalibrationBin> out(static_cast<std::size_t>(bins));
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    HONE_CHECK(confidences[i] >= 0 && confidences[i] <= 1 + 1e-9, "calibration",
               "probabilities from 0 to 1", confidences[i]);
    const auto above = static_cast<Index>(std::ceil(confidences[i] * static_cast<double>(bins)));
    CalibrationBin& bin = out[static_cast<std::size_t>(std::clamp<Index>(above - 1, 0, bins - 1))];
    ++bin.images;
    bin.confidence += confidences[i];
    bin.accuracy += right[i] != 0 ? 1 : 0;
  }
  for (CalibrationBin& bin : out) {
    if (bin.images == 0) continue;
    bin.confidence /= static_cast<double>(bin.images);
    bin.accuracy /= static_cast<double>(bin.images);
  }
  return out;
}

double calibration_error(std::span<const CalibrationBin> bins) {
  double sum = 0;
  Index images = 0;
  for (const CalibrationBin& bin : bins) {
    sum += static_cast<double>(bin.images) * std::abs(bin.confidence - bin.accuracy);
    images += bin.images;
  }
  return images > 0 ? sum / static_cast<double>(images) : 0;
}

}  // namespace hone::task
