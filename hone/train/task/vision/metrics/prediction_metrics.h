// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/index.h"

namespace hone::task {

// Figures of a classifier from the classes and probabilities that it gave, without LibTorch. Labels
// and predictions are below the number of classes; Error{InvalidArgument} for others and for spans
// of different lengths.

// How often images of one class were taken for another. Takes memory for the pairs that occur: the
// square of tens of thousands of classes would be gigabytes.
class ConfusionMatrix {
 public:
  ConfusionMatrix(std::span<const Index> labels, std::span<const Index> predictions, Index classes);

  Index classes() const { return classes_; }
  Index at(Index label, Index prediction) const;
  // The sum of a row.
  Index images_of(Index label) const { return images_[static_cast<std::size_t>(label)]; }
  // Counts by {label, prediction} that are not 0.
  const std::map<std::pair<Index, Index>, Index>& counts() const { return counts_; }

 private:
  Index classes_;
  std::map<std::pair<Index, Index>, Index> counts_;
  std::vector<Index> images_;
};

// The mean over the classes that occur of the share of their images that is classified correctly.
double balanced_accuracy(const ConfusionMatrix& confusion);

struct ConfusedPair {
  Index label = 0, prediction = 0, images = 0;
};
// The pairs of two classes with the most images, at most `limit`; of equal ones the first by label,
// then by prediction.
std::vector<ConfusedPair> most_confused(const ConfusionMatrix& confusion, Index limit);

// The images whose predicted class has a probability in ((b - 1) / B, b / B], the first bin with 0:
// their number, mean probability and share of right predictions, both 0 without images.
struct CalibrationBin {
  Index images = 0;
  double confidence = 0, accuracy = 0;
};
// Images by the probability of their predicted class, in `bins` bins of equal width.
std::vector<CalibrationBin> calibration_bins(std::span<const double> confidences,
                                             std::span<const std::uint8_t> right, Index bins);
// The mean over images of |confidence - accuracy| of their bin: the expected calibration error of
// Guo et al., "On calibration of modern neural networks" (2017). 0 without images.
double calibration_error(std::span<const CalibrationBin> bins);

// The calibration error before and after scaling by a temperature. The temperature is fitted on the
// images of even index, and both errors are those of the odd ones: on the images of the fit, the
// error after it would flatter.
struct TemperatureScaling {
  double temperature = 1;
  Index images = 0;  // of odd index
  double error = 0, scaled_error = 0;
};

}  // namespace hone::task
