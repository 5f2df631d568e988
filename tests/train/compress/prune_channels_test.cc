// SPDX-License-Identifier: Apache-2.0
// A ResNet without some channels: equal to the model with these channels set to 0, and smaller.
#include "hone/train/compress/prune_channels.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "hone/train/surgery/slot.h"
#include "hone/train/task/vision/vision_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::relative;
using test::seeded_normal;
using testing::HasSubstr;
using torch::Tensor;

// With statistics and scales as training leaves them.
ResNet used_resnet(const std::string& name) {
  ResNet net(VisionSpec{.name = name, .width = 8, .channels = 3, .height = 32, .image_width = 32},
             1);
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 1;
  for (const NamedTensor& buffer : buffers_by_path(*net)) {
    Tensor value = buffer.value;
    if (buffer.name.ends_with("running_mean")) value.normal_(0, 0.1);
    if (buffer.name.ends_with("running_var")) value.uniform_(0.5, 2);
  }
  for (const NamedTensor& parameter : parameters_by_path(*net)) {
    Tensor value = parameter.value;
    if (value.dim() == 1) value.copy_(value + seeded_normal(value.sizes(), seed++, at::kFloat) / 5);
  }
  net->eval();
  return net;
}

Tensor images() { return seeded_normal({2, 3, 32, 32}, 9, at::kFloat); }

// Sets the channels that are not kept to 0 behind their normalization.
void zero_removed(ResNet& net, const PrunedResNet& pruned) {
  const at::NoGradGuard no_grad;
  for (const RemovedChannels& layer : pruned.layers) {
    std::string norm = layer.conv;
    norm.replace(norm.find("conv"), 4, "bn");
    const std::set<Index> kept(layer.kept.begin(), layer.kept.end());
    for (const NamedTensor& parameter : parameters_by_path(*net)) {
      if (parameter.name != norm + ".weight" && parameter.name != norm + ".bias") continue;
      for (Index channel = 0; channel < layer.before; ++channel) {
        if (!kept.contains(channel)) Tensor(parameter.value)[channel].zero_();
      }
    }
  }
}

TEST(PruneChannels, equals_the_model_with_zeros) {
  for (const char* name : {"resnet20", "resnet18", "resnet50"}) {
    for (const bool global : {false, true}) {
      ResNet net = used_resnet(name);
      const Tensor before = net->forward(images());
      const PrunedResNet pruned = prune_channels(net, {.ratio = 0.5, .global = global});
      EXPECT_TRUE(net->forward(images()).equal(before)) << "the model is not changed";
      EXPECT_LT(pruned.parameters_after, pruned.parameters_before);
      EXPECT_FALSE(pruned.net->is_training());
      zero_removed(net, pruned);
      EXPECT_LE(relative(ResNet(pruned.net)->forward(images()), net->forward(images())), 1e-5)
          << name;
      EXPECT_GT(relative(net->forward(images()), before), 1e-3);
    }
  }
}

TEST(PruneChannels, counts_are_the_fraction) {
  ResNet net = used_resnet("resnet20");
  const PrunedResNet pruned = prune_channels(net, {.ratio = 0.25});
  ASSERT_EQ(pruned.layers.size(), 9U);
  EXPECT_EQ(pruned.layers[0].kept.size(), 6U);
  EXPECT_EQ(pruned.layers[8].kept.size(), 24U);
  EXPECT_EQ(pruned.net->spec().inner_widths, (std::vector<Index>{6, 6, 6, 12, 12, 12, 24, 24, 24}));
  const PrunedResNet rounded = prune_channels(net, {.ratio = 0.3, .round_to = 8});
  EXPECT_EQ(rounded.net->spec().inner_widths, (std::vector<Index>{8, 8, 8, 8, 8, 8, 24, 24, 24}));
  const PrunedResNet all = prune_channels(net, {.ratio = 0.3, .global = true});
  Index kept = 0;
  for (const RemovedChannels& layer : all.layers) kept += std::ssize(layer.kept);
  EXPECT_EQ(kept, 168 - 50);
  // Pruned again, and everything kept.
  ResNet smaller = pruned.net;
  EXPECT_EQ(prune_channels(smaller, {.ratio = 0.5}).net->spec().inner_widths[0], 3);
  EXPECT_EQ(prune_channels(net, {.ratio = 0}).parameters_after, pruned.parameters_before);
}

TEST(PruneChannels, removes_dead_channels_first) {
  for (const PruneScore score : {PruneScore::Magnitude, PruneScore::Gradient}) {
    ResNet net = used_resnet("resnet20");
    for (const NamedTensor& parameter : parameters_by_path(*net)) {
      const at::NoGradGuard no_grad;
      if (parameter.name == "layer1.0.conv1.weight") Tensor(parameter.value)[5].zero_();
      if (parameter.name == "layer1.0.conv2.weight") Tensor(parameter.value).select(1, 5).zero_();
    }
    ChannelOptions options{.score = score, .ratio = 0.125, .batches = 2};
    options.loss = [&](Index) { return net->forward(images()).square().mean(); };
    const PrunedResNet pruned = prune_channels(net, options);
    EXPECT_EQ(std::ranges::count(pruned.layers[0].kept, 5), 0);
    EXPECT_EQ(pruned.layers[0].kept.size(), 7U);
  }
}

TEST(PruneChannels, a_folder_has_the_smaller_model) {
  const hone::test::TemporaryFolder dir;
  ResNet net = used_resnet("resnet20");
  PrunedResNet pruned = prune_channels(net, {.ratio = 0.5});
  const auto write = [&](const char* name, const ResNet& which) {
    task::VisionModel model{.net = VisionNet(std::static_pointer_cast<VisionNetImpl>(which.ptr())),
                            .classes = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"},
                            .stats = {.mean = {0, 0, 0}, .std = {1, 1, 1}}};
    task::write_vision_model(dir.path() / name, model);
    return std::filesystem::file_size(dir.path() / name / "model.safetensors");
  };
  EXPECT_LT(write("small", pruned.net), 0.6 * static_cast<double>(write("full", net)));
  task::VisionModel read = task::read_vision_model(dir.path() / "small");
  read.net->eval();
  EXPECT_TRUE(read.net->forward(images()).equal(pruned.net->forward(images())));
}

TEST(PruneChannels, trains_on) {
  ResNet net = used_resnet("resnet20");
  net->train();
  PrunedResNet pruned = prune_channels(net, {.ratio = 0.5});
  EXPECT_TRUE(pruned.net->is_training());
  pruned.net->forward(images()).square().mean().backward();
  for (const Tensor& parameter : pruned.net->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(PruneChannels, refuses_what_it_cannot_do) {
  ResNet net = used_resnet("resnet20");
  EXPECT_THAT(refusal([&] { prune_channels(net, {.ratio = 1}); }), HasSubstr("ratio"));
  EXPECT_THAT(refusal([&] { prune_channels(net, {.score = PruneScore::Gradient}); }),
              HasSubstr("loss"));
  VisionSpec spec = net->spec();
  spec.inner_widths = {8, 8};
  EXPECT_THAT(refusal([&] { make_vision_net(spec, 1); }), HasSubstr("9 numbers"));
  spec.inner_widths.assign(9, 9);
  EXPECT_THAT(refusal([&] { make_vision_net(spec, 1); }), HasSubstr("1 to 8"));
  EXPECT_THAT(refusal([&] { make_vision_net({.name = "mlp", .inner_widths = {3}}, 1); }),
              HasSubstr("ResNet"));
}

}  // namespace
}  // namespace hone::nn
