// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/index.h"

namespace hone::task {

// Metrics of a classifier from its predicted classes and probabilities, without LibTorch. Labels
// and predictions must be below the number of classes, and spans must have equal lengths; otherwise
// throws Error{InvalidArgument}.

// Counts of images by label and prediction. Stores only the pairs that occur, because a full matrix
// would take gigabytes for tens of thousands of classes.
class ConfusionMatrix {
 public:
  ConfusionMatrix(std::span<const Index> labels, std::span<const Index> predictions, Index classes);

  Index classes() const { return classes_; }
  Index at(Index label, Index prediction) const;
  // Number of images with this label: the sum of a row.
  Index images_of(Index label) const { return images_[static_cast<std::size_t>(label)]; }
  // Counts by {label, prediction} that are not 0.
  const std::map<std::pair<Index, Index>, Index>& counts() const { return counts_; }

 private:
  Index classes_;
  std::map<std::pair<Index, Index>, Index> counts_;
  std::vector<Index> images_;
};

// Returns the mean, over the classes that occur, of the share of their images that is correct.
double balanced_accuracy(const ConfusionMatrix& confusion);

struct ConfusedPair {
  Index label = 0, prediction = 0, images = 0;
};
// Returns the pairs of two classes with the most images, at most `limit`. Equal pairs are in the
// order of label, then of prediction.
std::vector<ConfusedPair> most_confused(const ConfusionMatrix& confusion, Index limit);

// Images whose predicted class has a probability in ((b - 1) / B, b / B]; the first bin includes 0.
// Has their number, mean probability and accuracy; the last two are 0 without images.
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

// The calibration error before and after temperature scaling. The temperature is fitted on images
// with an even index, and both errors are computed on images with an odd index. On the images of
// the fit, the error after it would be biased.
struct TemperatureScaling {
  double temperature = 1;
  Index images = 0;  // with an odd index
  double error = 0, scaled_error = 0;
};

}  // namespace hone::task
