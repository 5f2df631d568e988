// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hone/report/pictures.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// Chooses at most `count` images: first misclassified ones, then correctly classified ones, half of
// each if there are enough. A class has at most one image of each kind.
std::vector<Index> choose_examples(std::span<const Index> labels,
                                   std::span<const Index> predictions, Index count);

// Draws these images of a part as the network sees them, with the windows of their parts. `labels`
// and `predictions` are those of all images of the part. The model must be a ResNet with parts.
std::vector<report::Picture> part_pictures(task::VisionModel& model, const data::ImagePart& part,
                                           const std::vector<Index>& indices,
                                           std::span<const Index> labels,
                                           std::span<const Index> predictions);

}  // namespace hone::app
