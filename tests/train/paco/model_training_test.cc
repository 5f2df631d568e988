// SPDX-License-Identifier: Apache-2.0
// Whole models: weights from files, the map that parts come from, seeds, and drawn leaves.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "hone/core/log.h"
#include "hone/data/leaves/leaves.h"
#include "hone/train/amp/autocast_guard.h"
#include "hone/train/nn/load_weights.h"
#include "hone/train/optim/adam.h"
#include "hone/train/paco/model.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/image_batches.h"
#include "hone/train/tensor_file.h"
#include "tests/support/test_data.h"

namespace hone::paco {
namespace {

using testing::IsEmpty;
using torch::Tensor;
using Shape = std::vector<std::int64_t>;

PacoModelOptions small_with_side(Index side = 32) {
  PacoModelOptions options{.classes = 4};
  options.backbone = {
      .name = "resnet20", .width = 8, .channels = 3, .height = side, .image_width = side};
  options.dim = 16;
  return options;
}

Tensor labels_of(Index images) { return at::arange(images, at::kLong).remainder(4); }

TEST(PacoModel, takes_parts_from_the_map_that_is_told) {
  at::manual_seed(1);
  const Tensor one = at::randn({4, 3, 32, 32}), two = at::randn({4, 3, 32, 32});
  for (const auto stage : {nn::ResNetImpl::Stage::Last, nn::ResNetImpl::Stage::Penultimate}) {
    PacoModelOptions options = small_with_side();
    options.stage = stage;
    PacoModel model(options);
    const Index channels = stage == nn::ResNetImpl::Stage::Last ? 32 : 16;
    const PacoOutput out = model->forward(one, two, labels_of(4));
    EXPECT_EQ(out.view1.parts.sizes(), (Shape{4, 4, channels}));
    EXPECT_EQ(out.features1.sizes(), (Shape{4, 32})) << "of the last map";
    EXPECT_EQ(model->projection->weight.sizes(), (Shape{16, channels}));
    out.total.backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(at::isfinite(item.value().grad()).all().item<bool>()) << item.key();
    }
  }
}

// The norms of the features of two unlike views differ; both count alike, or the first, as
// published.
TEST(PacoModel, weighs_cross_entropy_by_both_views_unless_as_published) {
  at::manual_seed(2);
  PacoModelOptions options = small_with_side();
  options.ce_views = CeViews::Mean;
  const Tensor one = at::randn({4, 3, 32, 32}), two = 3 * at::rand({4, 3, 32, 32});
  for (const CeWeight kind : {CeWeight::Detached, CeWeight::Attached}) {
    options.ce = {.weight = kind, .gamma = 1, .label_smoothing = 0};
    const PacoOutput out = PacoModel(options)->forward(one, two, labels_of(4));
    const Tensor &first = out.view1.weight, &second = out.view2.weight;
    ASSERT_GT((first - second).abs().max().item<double>(), 1e-3 * first.max().item<double>());
    const Tensor each = at::cross_entropy_loss(out.logits, labels_of(4), {}, at::Reduction::None);
    const Tensor both = (first + second) / 2;
    const Tensor want = kind == CeWeight::Detached ? (each * both / both.mean()).mean()
                                                   : each.mean() * first.mean();
    EXPECT_NEAR(out.ce.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
  }
}

TEST(PacoModel, has_the_cross_entropy_of_each_view_or_of_their_mean) {
  at::manual_seed(2);
  PacoModelOptions options = small_with_side();
  options.ce = {.weight = CeWeight::Off, .gamma = 0, .label_smoothing = 0};
  const Tensor one = at::randn({4, 3, 32, 32}), two = 3 * at::rand({4, 3, 32, 32});
  PacoModel each(options);
  options.ce_views = CeViews::Mean;
  PacoModel mean(options);
  const auto entropy = [](const Tensor& logits) {
    return at::cross_entropy_loss(logits, labels_of(4)).item<double>();
  };
  const auto of_view = [&](const Tensor& images) {
    return entropy(PacoModel(options)->forward(images).logits);
  };
  const double of_each = (of_view(one) + of_view(two)) / 2;
  const PacoOutput out = mean->forward(one, two, labels_of(4));
  EXPECT_NEAR(out.ce.item<double>(), entropy(out.logits), 1e-6);
  EXPECT_NEAR(each->forward(one, two, labels_of(4)).ce.item<double>(), of_each, 1e-6);
  EXPECT_GT(std::abs(of_each - entropy(out.logits)), 1e-4);
}

// Features are those of bf16 convolutions; what follows them is computed in fp32.
TEST(PacoModel, has_only_its_backbone_in_autocast) {
  at::manual_seed(2);
  PacoModel model(small_with_side());
  const Tensor one = at::randn({4, 3, 32, 32}), two = at::randn({4, 3, 32, 32});
  const PacoOutput plain = model->forward(one, two, labels_of(4));
  const amp::AutocastGuard autocast(at::kCPU, at::kBFloat16);
  ASSERT_TRUE(autocast.report().active) << autocast.report().reason;
  const PacoOutput out = model->forward(one, two, labels_of(4));
  for (const Tensor& tensor : {out.features1, out.logits, out.view1.parts, out.ce}) {
    EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  }
  EXPECT_FALSE(out.features1.equal(plain.features1)) << "the backbone is in bf16";
  const amp::AutocastGuard off(at::kCPU, at::kBFloat16, false);
  EXPECT_TRUE(out.logits.equal(model->backbone->classify((out.features1 + out.features2) / 2)));
}

TEST(PacoModel, keeps_parts_and_dimensions_up_to_the_caps_silently) {
  set_log_level(LogLevel::Warning);
  for (const auto& [parts, dim] : {std::pair<Index, Index>{3, 32}, {kPartsCap, kDimCap}}) {
    PacoModelOptions options = small_with_side();
    options.sampler.parts = parts;
    options.dim = dim;
    testing::internal::CaptureStderr();
    const PacoModel model(options);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(model->options().sampler.parts, parts);
    EXPECT_EQ(model->projection->weight.size(0), dim);
  }
}

// A file with torchvision's names and its own number of classes.
TEST(PacoModel, takes_a_backbone_from_a_file_without_its_classifier) {
  const hone::test::TemporaryFolder folder;
  const auto file = folder.path() / "resnet18.safetensors";
  const nn::VisionSpec spec{
      .name = "resnet18", .width = 8, .channels = 3, .height = 64, .image_width = 64, .classes = 9};
  const nn::ResNet source(spec, 7);
  std::vector<NamedTensor> tensors = nn::parameters_by_path(*source);
  std::ranges::copy(nn::buffers_by_path(*source), std::back_inserter(tensors));
  write_tensors(file, tensors, {{"format", "pt"}});
  PacoModelOptions options = small_with_side(64);
  options.backbone.name = "resnet18";
  PacoModel model(options);
  const Tensor projection = model->projection->weight.clone();
  const nn::LoadedWeights loaded = nn::load_weights(*model->backbone, file);
  EXPECT_THAT(loaded.missing, IsEmpty());
  EXPECT_THAT(loaded.unexpected, IsEmpty());
  EXPECT_THAT(loaded.misshaped, IsEmpty());
  EXPECT_EQ(loaded.classifier.size(), 2u) << "fc.weight and fc.bias";
  const auto want = source->named_parameters();
  for (const auto& item : model->backbone->named_parameters()) {
    const bool is_classifier = item.key().starts_with("fc.");
    EXPECT_EQ(is_classifier, !item.value().equal(want[item.key()])) << item.key();
  }
  EXPECT_TRUE(model->projection->weight.equal(projection));
}

TEST(PacoModel, learns_the_same_bits_from_the_same_seeds) {
  const auto run = [] {
    at::manual_seed(3);
    PacoModelOptions options = small_with_side();
    options.loss.pool = NegativePool::OneImage;  // draws
    options.loss.alpha = 2;
    PacoModel model(options);
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
    std::vector<Tensor> left;
    for (Index step = 0; step < 4; ++step) {
      model->set_epoch(step);
      optimizer.zero_grad();
      const Tensor one = at::randn({6, 3, 32, 32}), two = at::randn({6, 3, 32, 32});
      const PacoOutput out = model->forward(one, two, labels_of(6));
      out.total.backward();
      optimizer.step();
      left.push_back(out.total.detach());
    }
    for (const Tensor& weight : model->parameters()) left.push_back(weight.detach());
    for (const Tensor& buffer : model->buffers()) left.push_back(buffer);
    return left;
  };
  const auto once = run(), again = run();
  ASSERT_EQ(once.size(), again.size());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(again[i])) << i;
}

// Distances have the scale of the margin from the first step on, whatever the scale of features:
// hinges are active and have a gradient.
TEST(PacoModel, contrasts_parts_of_leaves_in_its_first_step) {
  const data::LeavesOptions leaves{.classes = 8, .size = 64, .train = 4};
  const data::ImagePart part = data::leaves_part(leaves, data::LeafSplit::Train);
  const data::ImageShape shape{3, 64, 64};
  const task::ImageBatches batches(part, shape, task::measure_channels(part, shape), 5,
                                   {.crop = "random", .crop_padding = 8, .flip = 0.5, .ops = 2},
                                   /*views=*/2);
  const Index images = part.size();
  const task::ImageValues values = batches.make(0, images);
  const Tensor views = at::tensor(values.images).reshape({2, images, 3, 64, 64});
  const Tensor targets = at::tensor(values.labels, at::kLong);
  for (const Index warm_up : {0, 1}) {  // matched by the metric, or by cosine
    PacoModelOptions options = small_with_side(64);
    options.classes = 8;
    options.dim = 64;
    options.loss.match.warmup_epochs = warm_up;
    PacoModel model(options);
    const PacoOutput out = model->forward(views[0], views[1], targets);
    EXPECT_EQ(out.parts.empty_share.item<double>(), 0);
    EXPECT_GE(out.parts.active_share.item<double>(), 0.02);
    EXPECT_GT(out.pac.item<double>(), 0.02 * options.loss.alpha);
    out.pac.backward();
    const Tensor& gradient = model->projection->weight.grad();
    EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
    EXPECT_GT(gradient.abs().max().item<double>(), 0);
  }
}

}  // namespace
}  // namespace hone::paco
