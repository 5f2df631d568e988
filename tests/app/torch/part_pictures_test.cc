// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/part_pictures.h"

#include <gtest/gtest.h>

#include <set>

#include "hone/core/philox.h"
#include "hone/train/task/vision/part_boxes.h"

namespace hone::app {
namespace {

using Labels = std::vector<Index>;

TEST(ChooseExamples, takes_the_first_image_of_each_class_wrong_ones_first) {
  const Labels labels{0, 0, 1, 1, 2, 2, 2}, predictions{0, 1, 1, 1, 0, 2, 1};
  EXPECT_EQ(choose_examples(labels, predictions, 12), (Labels{1, 4, 0, 2, 5}));
  EXPECT_EQ(choose_examples(labels, predictions, 4), (Labels{1, 4, 0, 2}));
  EXPECT_EQ(choose_examples(labels, labels, 2), (Labels{0, 2}));
  EXPECT_TRUE(choose_examples({}, {}, 12).empty());
}

TEST(ChooseExamples, spreads_over_many_classes) {
  Labels labels, predictions;
  for (Index label = 0; label < 60; ++label) {
    labels.insert(labels.end(), {label, label});
    predictions.insert(predictions.end(), {label, (label + 1) % 60});
  }
  const Labels chosen = choose_examples(labels, predictions, 12);
  ASSERT_EQ(chosen.size(), 12u);
  std::set<Index> tens;
  for (std::size_t i = 0; i < 12; ++i) {
    const auto image = static_cast<std::size_t>(chosen[i]);
    EXPECT_EQ(labels[image] != predictions[image], i < 6);
    if (i < 6) tens.insert(labels[image] / 10);
  }
  EXPECT_EQ(tens.size(), 6u) << "one wrong image of every tenth of the classes";
}

// Pictures of 10 x 10 of which the model sees the 8 x 8 in the middle.
TEST(PartPictures, show_the_pixels_that_the_network_sees_and_the_windows_on_them) {
  const data::ImageShape shape{3, 10, 10};
  PhiloxStream random(2);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(5 * shape.values()));
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random.below(256));
  const data::ImagePart part(shape, std::vector<std::uint8_t>(5), pixels);
  task::VisionModel model{.net = nn::make_vision_net({.name = "resnet20",
                                                      .width = 8,
                                                      .channels = 3,
                                                      .height = 8,
                                                      .image_width = 8,
                                                      .classes = 2},
                                                     /*seed=*/1),
                          .classes = {"one", "two"},
                          .stats = {{0.3, 0.4, 0.5}, {0.2, 0.3, 0.1}},
                          .image_side = 10,
                          .parts = task::PartSpec{.stage = nn::ResNetImpl::Stage::Penultimate,
                                                  .sampler = {.parts = 2, .window = 1}}};
  const Labels indices{4, 1, 3}, labels{0, 1, 0, 0, 1}, predictions{0, 0, 0, 0, 1};
  const auto pictures = part_pictures(model, part, indices, labels, predictions);
  ASSERT_EQ(pictures.size(), 3u);
  EXPECT_EQ(pictures[0].name, "two");
  EXPECT_EQ(pictures[0].note, "right");
  EXPECT_EQ(pictures[1].note, "wrong: one");
  EXPECT_TRUE(pictures[1].marked);
  EXPECT_FALSE(pictures[2].marked);
  for (std::size_t i = 0; i < 3; ++i) {
    const data::Image shown = data::decode_image(pictures[i].png, "picture");
    ASSERT_EQ(shown.height, 8);
    ASSERT_EQ(shown.width, 8);
    for (Index y = 0; y < 8; ++y) {
      for (Index x = 0; x < 8; ++x) {
        for (Index c = 0; c < 3; ++c) {
          const Index at = indices[i] * shape.values() + (c * 10 + y + 1) * 10 + x + 1;
          ASSERT_EQ(shown.pixels[static_cast<std::size_t>((y * 8 + x) * 3 + c)],
                    pixels[static_cast<std::size_t>(at)]);
        }
      }
    }
    ASSERT_EQ(pictures[i].boxes.size(), 2u);
    for (const report::PictureBox& box : pictures[i].boxes) {  // the map has 4 x 4 cells
      EXPECT_EQ(box.width, 2);
      EXPECT_EQ(box.height, 2);
      EXPECT_GE(box.left, 0);
      EXPECT_LE(box.left + box.width, 8);
    }
    EXPECT_EQ(pictures[i].boxes[1].label, "2");
  }
  EXPECT_TRUE(part_pictures(model, part, {}, labels, predictions).empty());
}

}  // namespace
}  // namespace hone::app
