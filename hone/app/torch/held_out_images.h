// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "hone/data/image/image_corpus.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// The held-out images of a folder of labeled images (data::load_images), or the validation leaves
// of those that the model was trained on for data::kLeavesName, of the size that the model takes.
// With ImageParts::All, all images of the folder, or the leaves that it was trained on as well.
// Throws Error{InvalidArgument} for images of another size, and for leaves of a model that was not
// trained on any.
data::ImageCorpus load_held_out(const std::string& data, const task::VisionModel& model,
                                const std::stop_token& stop,
                                data::ImageParts parts = data::ImageParts::HeldOut);

// The model's label of each held-out image, found by the name of its class. Error{InvalidArgument}
// for a class that the model does not know.
std::vector<Index> labels_of(const data::ImageCorpus& corpus,
                             const std::vector<std::string>& model);

}  // namespace hone::app
