// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "hone/data/image/image_corpus.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

// Loads the held-out images of a folder of labeled images (data::load_images), in the size that the
// model takes. For data::kLeavesName, loads the validation part of the leaf images that the model
// was trained on. With ImageParts::All, the training images are held out, too; with
// ImageParts::Both, they are the corpus's training part. Throws Error{InvalidArgument} for images
// of another size, and for leaf images if the model was not trained on any.
data::ImageCorpus load_held_out(const std::string& data, const task::VisionModel& model,
                                const std::stop_token& stop,
                                data::ImageParts parts = data::ImageParts::HeldOut);

// The model's label of each image of a part, found by the name of its class. Throws
// Error{InvalidArgument} for a class that the model does not know.
std::vector<Index> labels_of(const data::ImageCorpus& corpus, const data::ImagePart& part,
                             const std::vector<std::string>& model);

}  // namespace hone::app
