// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/data/image/image.h"
#include "hone/train/task/vision/vision_model.h"

namespace hone::task {

// A rectangle in pixels of an image.
struct PartBox {
  double left = 0, top = 0, width = 0, height = 0;
};
// The window of `window` cells (paco::SamplerOptions) around a cell of a map of this many rows and
// columns, clipped to the map: a row of cells covers image.height / rows rows of pixels.
PartBox window_box(Index row, Index column, Index window, Index rows, Index columns,
                   const data::ImageShape& image);

// Returns the windows of the parts of each image [batch, channels, height, width], in the order of
// the sampler. Runs the network in evaluation mode.
std::vector<std::vector<PartBox>> find_part_boxes(nn::ResNetImpl& net, const PartSpec& parts,
                                                  const torch::Tensor& images);

}  // namespace hone::task
