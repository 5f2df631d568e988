// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/score_images.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "hone/train/nn/resnet.h"

namespace hone::task {
namespace {

constexpr Index kScoredImages = 11;

class GatherScores : public testing::Test {
 protected:
  GatherScores() {
    PhiloxStream random(4);
    std::vector<std::uint8_t> pixels;
    for (Index i = 0; i < kScoredImages * shape_.values(); ++i) {
      pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    part_ = {shape_, std::vector<std::uint8_t>(kScoredImages), std::move(pixels)};
  }
  nn::VisionNet make(const char* name) const {
    return nn::make_vision_net({.name = name,
                                .width = 8,
                                .channels = shape_.channels,
                                .height = shape_.height,
                                .image_width = shape_.width,
                                .classes = 3},
                               /*seed=*/5);
  }
  ImageScores gather(nn::VisionNet& net, Index batch) const {
    const ImageBatches batches(part_, shape_, stats_, /*seed=*/9);
    return gather_scores(net, batches, {.count = kScoredImages, .batch = batch}, [](Index) {});
  }
  // Image i by itself, normalized by the formula.
  torch::Tensor input(Index i) const {
    std::vector<std::uint8_t> planes(static_cast<std::size_t>(shape_.values()));
    part_.read(i, planes);
    torch::Tensor image = at::empty({1, shape_.channels, shape_.height, shape_.width});
    for (Index at = 0; at < shape_.values(); ++at) {
      const auto value = static_cast<double>(planes[static_cast<std::size_t>(at)]) / 255;
      image.view(-1)[at] = (value - stats_.mean[0]) / stats_.std[0];
    }
    return image;
  }

  data::ImageShape shape_{1, 8, 8};
  ChannelStats stats_{{0.4}, {0.3}};
  data::ImagePart part_;
};

TEST_F(GatherScores, gives_the_rows_of_single_images_in_the_order_of_the_part) {
  for (const char* name : {"mlp", "cnn", "resnet20"}) {
    nn::VisionNet net = make(name);
    const ImageScores scores = gather(net, 4);
    EXPECT_TRUE(net->is_training());
    ASSERT_EQ(scores.logits.sizes(), (std::vector<std::int64_t>{kScoredImages, 3}));
    net->eval();
    const torch::NoGradGuard no_grad;
    auto* const resnet = dynamic_cast<nn::ResNetImpl*>(net.get());
    EXPECT_EQ(scores.features.defined(), resnet != nullptr) << name;
    for (Index i = 0; i < kScoredImages; ++i) {
      const torch::Tensor image = input(i);
      EXPECT_TRUE(at::allclose(scores.logits[i], net->forward(image)[0], 1e-4, 1e-5)) << name << i;
      if (resnet == nullptr) continue;
      const torch::Tensor mean = resnet->forward_features(image).mean({2, 3});
      EXPECT_TRUE(at::allclose(scores.features[i], mean[0], 1e-4, 1e-5)) << i;
    }
  }
}

TEST_F(GatherScores, ends_where_a_batch_says_so_and_takes_one_epoch_only) {
  nn::VisionNet net = make("mlp");
  const ImageBatches batches(part_, shape_, stats_, /*seed=*/9);
  Index last = 0;
  const auto stop_after_two = [&](Index done) {
    last = done;
    if (done >= 8) throw Error(ErrorCategory::Cancelled, "enough");
  };
  EXPECT_THROW(gather_scores(net, batches, {.count = kScoredImages, .batch = 4}, stop_after_two),
               Error);
  EXPECT_EQ(last, 8);
  EXPECT_TRUE(net->is_training());
  const ScoreOptions two_epochs{.count = 2 * kScoredImages, .batch = 4};
  EXPECT_THROW(gather_scores(net, batches, two_epochs, [](Index) {}), Error);
}

}  // namespace
}  // namespace hone::task
