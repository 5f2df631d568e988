// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::app {

// Options for classifying with a model that `hone train vision` wrote.
struct ClassifyOptions {
  std::filesystem::path model;
  int threads = 0;            // LibTorch threads; 0 means usable_cpus()
  std::stop_token stop = {};  // requested: Error{Cancelled}
};

struct ClassProbability {
  std::string name;
  double probability = 0;
};
struct ClassifiedImage {
  std::filesystem::path path;
  std::vector<ClassProbability> classes;  // the most probable one first
  std::string problem;  // why the image cannot be decoded; there are then no classes
};
// Finds the `top` most probable classes of each image file, or all classes if there are fewer.
std::vector<ClassifiedImage> classify_images(const ClassifyOptions& options,
                                             const std::vector<std::filesystem::path>& images,
                                             Index top);
Json to_json(const std::vector<ClassifiedImage>& images);

}  // namespace hone::app
