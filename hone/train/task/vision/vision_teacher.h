// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "hone/train/task/vision/vision_model.h"

namespace hone::task {

// A classifier that another one learns from.
class VisionTeacher {
 public:
  // Reads the folder of a classifier or of a finished run. The student has these classes, takes
  // images of this shape, and normalizes them with these statistics. Throws like
  // read_vision_model(), and Error{InvalidArgument} for other images, or a class that the teacher
  // does not know.
  VisionTeacher(const std::filesystem::path& folder, const std::vector<std::string>& classes,
                const data::ImageShape& shape, const ChannelStats& stats, c10::Device device);

  // images [batch, channels, height, width] as the student takes them -> logits [batch, classes]
  // in the order of the student's classes, without a graph.
  torch::Tensor logits(const torch::Tensor& images) const;

  const std::filesystem::path& folder() const { return folder_; }
  Index parameters() const { return parameters_; }

 private:
  std::filesystem::path folder_;
  nn::VisionNet net_{nullptr};
  torch::Tensor scale_, shift_;  // from the student's normalization to its own
  torch::Tensor order_;          // its label of each class of the student
  Index parameters_ = 0;
};

}  // namespace hone::task
