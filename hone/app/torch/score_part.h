// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <stop_token>

#include "hone/train/task/vision/score_images.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// Images in a batch: 64 of up to 256 x 256 pixels for models of the usual width, fewer where images
// or maps are larger, which would take gigabytes.
Index score_batch(const nn::VisionSpec& spec);

// What a classifier makes of every image of a part, in its order, with progress on stderr. Throws
// Error{Cancelled} soon after stop, if not null, becomes true, and Error{CorruptFile} that names
// the model's folder for logits that are not finite.
task::ImageScores score_part(task::VisionModel& model, const std::filesystem::path& folder,
                             const data::ImagePart& part, const std::stop_token& stop);

}  // namespace hone::app
