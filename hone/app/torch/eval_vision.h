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
  // A folder of labeled images (data::load_images), or data::kLeavesName: the leaf images that the
  // model was trained on.
  std::string data;
  bool all = false;  // every image, not only the held-out part; for leaf images Train and Val
  Index ece_bins = 15, neighbors = 5;
  std::filesystem::path report;  // HTML file to write; empty: none
  std::uint64_t seed = 0;        // seed of the bootstrap
  int threads = 0;               // LibTorch threads; 0 means usable_cpus()
  std::stop_token stop = {};     // requested: Error{Cancelled}
};

struct ClassAccuracy {
  std::string name;
  Index images = 0, right = 0;
};
// The accuracy of the model minus the accuracy of the baseline on the same images, with the 95 %
// interval of a paired bootstrap over images.
struct VisionComparison {
  std::string baseline;
  double accuracy = 0;  // the baseline's
  double difference = 0, low = 0, high = 0;
};
// `ours` and `theirs` say which of the same images each model classifies right.
VisionComparison compare_accuracy(const std::vector<bool>& ours, const std::vector<bool>& theirs,
                                  std::uint64_t seed);

// Results on the images. Accuracies are fractions of images.
struct VisionCard {
  Index images = 0, broken_images = 0;
  double loss = 0;  // mean cross-entropy in nats
  double accuracy = 0, top5_accuracy = 0, balanced_accuracy = 0;
  double ece = 0;  // expected calibration error
  std::vector<task::CalibrationBin> reliability;
  std::optional<task::TemperatureScaling> scaling;  // nullopt for fewer than two images
  // Statistics of a ResNet's features; empty for other networks and where they are not defined.
  std::optional<double> fisher_ratio, neighbor_accuracy;
  Index neighbors = 0;  // the number asked for, at most all other images
  struct Confusion {
    std::string name, predicted;
    Index images = 0;
  };
  std::vector<Confusion> confused;     // the most frequent ones first
  std::vector<ClassAccuracy> classes;  // classes of the data
  std::optional<VisionComparison> comparison;
};

// Scores the held-out images, or all images, once. Writes the report if a file is given. Throws
// Error{InvalidArgument} if
// - images do not have the size of the model's, or have a class that the model does not know;
// - the data are leaf images, but the model was not trained on any, or the baseline was not trained
//   on the same number of classes of leaf images of this size;
// - the report would replace a folder or a file of the models, or be in the folder of the images.
VisionCard evaluate_vision(const VisionEvalOptions& options);
Json to_json(const VisionCard& card);

}  // namespace hone::app
