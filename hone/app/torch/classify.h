// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/core/json_io.h"

namespace hone::app {

// With a model that `hone train vision` wrote.
struct ClassifyOptions {
  std::filesystem::path model;
  int threads = 0;                          // of LibTorch; 0: usable_cpus()
  const std::atomic<bool>* stop = nullptr;  // true: Error{Cancelled}
};

struct ClassProbability {
  std::string name;
  double probability = 0;
};
struct ClassifiedImage {
  std::filesystem::path path;
  std::vector<ClassProbability> classes;  // the most probable first
  std::string problem;                    // why it cannot be decoded; then there are no classes
};
// The `top` most probable classes of each image file, or all classes where there are fewer.
std::vector<ClassifiedImage> classify_images(const ClassifyOptions& options,
                                             const std::vector<std::filesystem::path>& images,
                                             Index top);
Json to_json(const std::vector<ClassifiedImage>& images);

struct ClassAccuracy {
  std::string name;
  Index images = 0, right = 0;
};
struct ImageEvaluation {
  Index images = 0, broken_images = 0;
  double loss = 0, accuracy = 0;  // mean cross-entropy in nats; share of images
  std::vector<ClassAccuracy> classes;
};
// On the held-out part of labeled images (data::load_images). Error{InvalidArgument} where they
// have another size than the model's, or a class that it does not know.
ImageEvaluation evaluate_images(const ClassifyOptions& options, const std::filesystem::path& data);
Json to_json(const ImageEvaluation& evaluation);

}  // namespace hone::app
