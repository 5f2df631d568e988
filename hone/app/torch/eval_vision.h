// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"
#include "hone/train/task/vision/metrics/prediction_metrics.h"

namespace hone::app {

// Options for measuring a classifier that `hone train vision` wrote.
struct VisionEvalOptions {
  std::filesystem::path model;
  std::filesystem::path baseline;  // another such classifier; empty if none
  // A folder of labeled images (data::load_images), or data::kLeavesName: the leaves that the model
  // was trained on.
  std::string data;
  bool all = false;  // every image instead of the held-out part; of leaves Train and Val
  Index ece_bins = 15, neighbors = 5;
  std::filesystem::path report;  // HTML file to write; empty: none
  std::uint64_t seed = 0;        // of the bootstrap
  int threads = 0;               // of LibTorch; 0 means usable_cpus()
  std::stop_token stop = {};     // requested: Error{Cancelled}
};

struct ClassAccuracy {
  std::string name;
  Index images = 0, right = 0;
};
// Accuracy on the same images: that of the model minus that of the baseline, with the 95 % interval
// of a paired bootstrap over images.
struct VisionComparison {
  std::string baseline;
  double accuracy = 0;  // the baseline's
  double difference = 0, low = 0, high = 0;
};
// Figures of the images; accuracies are fractions of images.
struct VisionCard {
  Index images = 0, broken_images = 0;
  double loss = 0;  // mean cross-entropy in nats
  double accuracy = 0, top5_accuracy = 0, balanced_accuracy = 0;
  double ece = 0;  // expected calibration error
  std::vector<task::CalibrationBin> reliability;
  std::optional<task::TemperatureScaling> scaling;  // of two images or more
  // Figures of a ResNet's features; empty for other networks and where they are not defined.
  std::optional<double> fisher_ratio, neighbor_accuracy;
  Index neighbors = 0;  // those that were asked for, at most all other images
  struct Confusion {
    std::string name, predicted;
    Index images = 0;
  };
  std::vector<Confusion> confused;     // the most frequent ones first
  std::vector<ClassAccuracy> classes;  // of the data
  std::optional<VisionComparison> comparison;
};

// Scores the held-out images, or all, once and writes the report, if there shall be one. Throws
// Error{InvalidArgument} if the images do not have the size of the model's or a class that it does
// not know, for leaves of a model that was not trained on any, for a baseline that was not trained
// on as many classes of leaves of this size, and for a report in the place of a folder or of a file
// of the models, or in the folder of the images.
VisionCard evaluate_vision(const VisionEvalOptions& options);
Json to_json(const VisionCard& card);

}  // namespace hone::app
