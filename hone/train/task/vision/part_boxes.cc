// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/part_boxes.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace hone::task {

PartBox window_box(Index row, Index column, Index window, Index rows, Index columns,
                   const data::ImageShape& image) {
  const Index half = window / 2;
  const Index top = std::max<Index>(0, row - half), bottom = std::min(rows, row + half + 1);
  const Index left = std::max<Index>(0, column - half);
  const Index right = std::min(columns, column + half + 1);
  const double cell_height = static_cast<double>(image.height) / static_cast<double>(rows);
  const double cell_width = static_cast<double>(image.width) / static_cast<double>(columns);
  return {.left = static_cast<double>(left) * cell_width,
          .top = static_cast<double>(top) * cell_height,
          .width = static_cast<double>(right - left) * cell_width,
          .height = static_cast<double>(bottom - top) * cell_height};
}

std::vector<std::vector<PartBox>> find_part_boxes(nn::ResNetImpl& net, const PartSpec& parts,
                                                  const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const bool was_training = net.is_training();
  net.eval();
  const torch::Tensor features = net.forward_features(images, parts.stage);
  net.train(was_training);
  const torch::Tensor peaks = paco::sample_parts(features, parts.sampler).peaks.contiguous();
  const auto* cell = peaks.const_data_ptr<std::int64_t>();
  const data::ImageShape shape{images.size(1), images.size(2), images.size(3)};
  std::vector<std::vector<PartBox>> out(static_cast<std::size_t>(images.size(0)));
  for (std::vector<PartBox>& boxes : out) {
    for (Index k = 0; k < peaks.size(1); ++k, cell += 2) {
      boxes.push_back(window_box(cell[0], cell[1], parts.sampler.window, features.size(2),
                                 features.size(3), shape));
    }
  }
  return out;
}

}  // namespace hone::task
