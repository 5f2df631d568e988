// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/train/task/vision/metrics/prediction_metrics.h"

namespace hone::task {

// Figures of logits [images, classes], a CPU tensor of any floating-point type with at least one
// image, computed in fp64. Labels are one for each image and below the number of classes. Throws
// Error{InvalidArgument} for others.

// The class of the largest logit of each image, of equal ones the first.
std::vector<Index> predict_classes(const torch::Tensor& logits);
// The share of images with fewer than min(k, classes) classes before their own; of equal logits,
// those of earlier classes are before. At k = 1 it is the share that predict_classes() has right.
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

// A fit ends there at the latest: where every image is right, no temperature is the lowest.
inline constexpr double kLeastTemperature = 0.01, kMostTemperature = 100;
// The T that minimizes mean_nll(logits / T), which is convex in 1 / T: Newton's method between
// bounds, to a relative accuracy of 1e-9.
double fit_temperature(const torch::Tensor& logits, std::span<const Index> labels);

// The temperature of one half of the images and the calibration errors of the other. Throws
// Error{InvalidArgument} for fewer than two images.
TemperatureScaling scale_temperature(const torch::Tensor& logits, std::span<const Index> labels,
                                     Index bins);

}  // namespace hone::task
