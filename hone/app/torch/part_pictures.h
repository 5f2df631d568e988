// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hone/report/pictures.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// At most `count` images of different classes, first wrong ones, then right ones: half of each
// where there are enough. Of a class at most one of either.
std::vector<Index> choose_examples(std::span<const Index> labels,
                                   std::span<const Index> predictions, Index count);

// These images of a part, as the network sees them, with the windows of their parts. What each
// shows is labels and predictions of all images of the part. The model is a ResNet with parts.
std::vector<report::Picture> part_pictures(task::VisionModel& model, const data::ImagePart& part,
                                           const std::vector<Index>& indices,
                                           std::span<const Index> labels,
                                           std::span<const Index> predictions);

}  // namespace hone::app
