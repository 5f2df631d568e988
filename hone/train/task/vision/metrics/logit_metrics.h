// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/task/vision/metrics/prediction_metrics.h"

namespace hone::task {

// Metrics of logits [images, classes], a CPU tensor of any floating-point type with at least one
// image, computed in fp64. There is one label per image, below the number of classes. Throws
// Error{InvalidArgument} for other arguments.

// Returns the class of the largest logit of each image, and the first of equal ones.
std::vector<Index> predict_classes(const torch::Tensor& logits);
// Returns the share of images with fewer than min(k, classes) classes before their own. Equal
// logits are in the order of classes. At k = 1 it is the accuracy of predict_classes().
double top_accuracy(const torch::Tensor& logits, std::span<const Index> labels, Index k);
// The mean negative log-likelihood in nats: the cross-entropy.
double mean_nll(const torch::Tensor& logits, std::span<const Index> labels);

// The probability of the predicted class of each image, and whether that class is the label.
struct Confidences {
  std::vector<double> confidences;
  std::vector<std::uint8_t> right;
};
// The probabilities are softmax(logits / temperature).
Confidences confidences_of(const torch::Tensor& logits, std::span<const Index> labels,
                           double temperature = 1);

// Limits of a fit: if every image is correct, no temperature is the lowest.
inline constexpr double kLeastTemperature = 0.01, kMostTemperature = 100;
// The T that minimizes mean_nll(logits / T), which is convex in 1 / T: Newton's method between
// bounds, to a relative accuracy of 1e-9.
double fit_temperature(const torch::Tensor& logits, std::span<const Index> labels);

// Fits the temperature on one half of the images, and computes the calibration errors on the other.
// Throws Error{InvalidArgument} for fewer than two images.
TemperatureScaling scale_temperature(const torch::Tensor& logits, std::span<const Index> labels,
                                     Index bins);

}  // namespace hone::task
