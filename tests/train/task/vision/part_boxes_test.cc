// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/part_boxes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace hone::task {
namespace {

void expect_box(const PartBox& box, double left, double top, double width, double height) {
  EXPECT_DOUBLE_EQ(box.left, left);
  EXPECT_DOUBLE_EQ(box.top, top);
  EXPECT_DOUBLE_EQ(box.width, width);
  EXPECT_DOUBLE_EQ(box.height, height);
}

// Cells of 8 x 4 pixels.
TEST(WindowBox, covers_the_cells_around_and_is_clipped_to_the_map) {
  const data::ImageShape image{3, 64, 40};
  expect_box(window_box(4, 5, 3, 8, 10, image), 16, 24, 12, 24);
  expect_box(window_box(4, 5, 2, 8, 10, image), 16, 24, 12, 24);
  expect_box(window_box(4, 5, 1, 8, 10, image), 20, 32, 4, 8);
  expect_box(window_box(0, 0, 5, 8, 10, image), 0, 0, 12, 24);
  expect_box(window_box(7, 9, 5, 8, 10, image), 28, 40, 12, 24);
  expect_box(window_box(3, 3, 99, 8, 10, image), 0, 0, 40, 64);
}

TEST(WindowBox, of_cells_that_are_no_whole_pixels) {
  expect_box(window_box(1, 2, 1, 3, 3, {3, 64, 64}), 128.0 / 3, 64.0 / 3, 64.0 / 3, 64.0 / 3);
}

// The sampler's own peaks on the network's own map, in evaluation mode.
TEST(PartBoxes, are_the_windows_of_the_samplers_peaks) {
  nn::ResNet net(nn::VisionSpec{.name = "resnet20",
                                .width = 8,
                                .channels = 3,
                                .height = 32,
                                .image_width = 32,
                                .classes = 4},
                 std::uint64_t{3});
  at::manual_seed(1);
  const torch::Tensor images = at::randn({3, 3, 32, 32});
  for (const auto stage : {nn::ResNetImpl::Stage::Last, nn::ResNetImpl::Stage::Penultimate}) {
    const PartSpec parts{.stage = stage, .sampler = {.parts = 4, .window = 3}};
    net->train();
    const auto boxes = find_part_boxes(*net, parts, images);
    EXPECT_TRUE(net->is_training()) << "as before";
    net->eval();
    const torch::NoGradGuard no_grad;
    const torch::Tensor map = net->forward_features(images, stage);
    const torch::Tensor peaks = paco::sample_parts(map, parts.sampler).peaks;
    ASSERT_EQ(boxes.size(), 3u);
    for (Index i = 0; i < 3; ++i) {
      ASSERT_EQ(boxes[static_cast<std::size_t>(i)].size(), 4u);
      for (Index k = 0; k < 4; ++k) {
        const PartBox expected =
            window_box(peaks[i][k][0].item<std::int64_t>(), peaks[i][k][1].item<std::int64_t>(), 3,
                       map.size(2), map.size(3), {3, 32, 32});
        expect_box(boxes[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)], expected.left,
                   expected.top, expected.width, expected.height);
      }
    }
  }
}

}  // namespace
}  // namespace hone::task
