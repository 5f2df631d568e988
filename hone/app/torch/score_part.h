// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <stop_token>

#include "hone/train/task/vision/score_images.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// The number of images in a batch: 64 for images of up to 256 x 256 pixels and models of the usual
// width. It is smaller for larger images or maps, to limit memory.
Index score_batch(const nn::VisionSpec& spec);

// Scores every image of a part with the classifier, in the order of the part, and shows progress on
// stderr. Fuses the model for inference (nn::fuse_unmeasured). Throws Error{Cancelled} soon after
// `stop` (may be null) becomes true. Throws Error{CorruptFile}, which names `folder`, the folder of
// the model, if logits are not finite.
task::ImageScores score_part(task::VisionModel& model, const std::filesystem::path& folder,
                             const data::ImagePart& part, const std::stop_token& stop);

}  // namespace hone::app
