// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "hone/data/image/image_corpus.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::app {

struct CalibrationOptions {
  Index images = 512;  // at most
  Index batch = 32;
  std::uint64_t seed = 0;  // of the choice of images
};
// Batches of training images as the model takes them, with its labels.
struct CalibrationImages {
  std::vector<torch::Tensor> images, labels;
};
CalibrationImages load_calibration(const data::ImageCorpus& corpus, const task::VisionModel& model,
                                   const CalibrationOptions& options);

}  // namespace hone::app
