// SPDX-License-Identifier: Apache-2.0
// Classifiers whose layers are replaced by factored ones, against dense layers of the same weights.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/sketch/convert.h"
#include "hone/train/sketch/sketched_conv.h"
#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"

namespace hone::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using torch::Tensor;

VisionNet net_of(const char* name) {
  return make_vision_net({.name = name,
                          .width = 16,
                          .layers = 2,
                          .channels = 3,
                          .height = 16,
                          .image_width = 16,
                          .classes = 5},
                         /*seed=*/3);
}

std::vector<std::string> paths_of(const std::vector<Layer>& layers) {
  std::vector<std::string> out;
  for (const Layer& layer : layers) out.push_back(layer.path);
  return out;
}

// Replaces every convolution and linear layer; `dense` gets the weights that they stand for.
void factor_all(VisionNet& net, VisionNet& dense, FactorMode mode) {
  const torch::NoGradGuard no_grad;
  const bool sketched = mode == FactorMode::Sketched;
  const Fit fit = sketched ? Fit::Projection : Fit::Svd;
  std::uint64_t seed = 1;
  for (const Layer& layer : layers_of(*dense)) {
    if (layer.slot == nullptr) continue;
    if (auto* conv = layer.module->as<torch::nn::Conv2d>()) {
      SketchedConv2d factored = from_conv(
          *conv, {.mode = mode, .fit = fit, .rank = 4, .terms = sketched ? 2 : 1, .seed = seed++});
      conv->weight.copy_(factored->effective_weight());
      replace(*net, layer.path, torch::nn::AnyModule(factored));
    } else if (auto* linear = layer.module->as<torch::nn::Linear>()) {
      FitOptions options;
      options.mode = mode;
      options.fit = fit;
      options.rank = 4;
      options.terms = sketched ? 2 : 1;
      options.seed = seed++;
      FactoredLinear factored = from_linear(*linear, options);
      linear->weight.copy_(factored->effective_weight());
      replace(*net, layer.path, torch::nn::AnyModule(factored));
    }
  }
}

double worst_of(const Tensor& got, const Tensor& want) {
  return (got - want).abs().max().item<double>() / want.abs().max().item<double>();
}

TEST(VisionSlots, hold_every_convolution_and_linear_layer_at_its_path) {
  for (const std::string_view name : vision_models()) {
    VisionNet net = net_of(std::string(name).c_str());
    Index weights = 0, layers = 0;
    for (const Layer& layer : layers_of(*net)) {
      const std::string type = type_of(*layer.module);
      EXPECT_EQ(layer.slot != nullptr, type == "Conv2d" || type == "Linear") << layer.path;
      if (layer.slot != nullptr) ++layers;
    }
    for (const NamedTensor& parameter : parameters_by_path(*net)) {
      if (parameter.value.dim() >= 2) ++weights;
      EXPECT_EQ(parameter.name.find("layer."), std::string::npos) << parameter.name;
    }
    EXPECT_EQ(layers, weights) << name;
  }
}

TEST(VisionSlots, are_selected_by_pattern_and_type) {
  VisionNet net = net_of("resnet20");
  LayerSelector selector;
  selector.pattern = {"layer2.*conv"};
  selector.type = {"Conv2d"};
  EXPECT_THAT(paths_of(select_layers(*net, selector)),
              ElementsAre("layer2.0.conv1", "layer2.0.conv2", "layer2.1.conv1", "layer2.1.conv2",
                          "layer2.2.conv1", "layer2.2.conv2"));
  LayerSelector linear;
  linear.type = {"Linear"};
  EXPECT_THAT(paths_of(select_layers(*net, linear)), ElementsAre("linear"));
  EXPECT_THAT(module_tree(*net), HasSubstr("conv1 (Conv2d), in a Slot, 432 parameters\n"));
  EXPECT_THAT(module_tree(*net), HasSubstr("linear (Linear), in a Slot, 325 parameters\n"));
}

TEST(VisionSlots, a_new_model_draws_nothing_from_the_generator_of_libtorch) {
  at::manual_seed(5);
  const Tensor expected = at::rand({3});
  at::manual_seed(5);
  net_of("resnet18");
  EXPECT_TRUE(at::rand({3}).equal(expected));
}

// The layer says what it is to what reads or copies it.
TEST(VisionSlots, a_linear_layer_is_that_of_libtorch) {
  VisionNet net = net_of("mlp");
  const Layer layer = find_layer(*net, "linear");
  auto* linear = layer.module->as<torch::nn::Linear>();
  ASSERT_NE(linear, nullptr);
  EXPECT_EQ(linear->options.in_features(), 16);
  EXPECT_EQ(linear->options.out_features(), 5);
  const Tensor x = at::randn({4, 16});
  const Tensor y = layer.slot->forward(x);
  EXPECT_LE(worst_of(y, at::mm(x, linear->weight.t()) + linear->bias), 1e-6);
  const auto copy = layer.slot->clone();
  EXPECT_TRUE(copy->as<SlotImpl>()->forward(x).equal(y));
  EXPECT_FALSE(copy->parameters().front().is_alias_of(linear->weight));
  EXPECT_EQ(type_of(*copy->as<SlotImpl>()->layer().ptr()), "Linear");
}

TEST(VisionSlots, factored_layers_compute_what_dense_ones_of_their_weights_do) {
  for (const char* name : {"mlp", "cnn", "resnet20", "resnet18", "resnet50"}) {
    // Each normalization of a deep network, of which there are 53, amplifies rounding errors.
    const bool is_deep = std::string_view(name) == "resnet50";
    const double tolerance = is_deep ? 1e-9 : 1e-10;
    for (const FactorMode mode : {FactorMode::LowRank, FactorMode::Sketched}) {
      if (is_deep && mode == FactorMode::Sketched) continue;  // half a minute
      VisionNet net = net_of(name), dense = net_of(name);
      net->to(at::kDouble);
      dense->to(at::kDouble);
      const Tensor before = dense->forward(at::ones({2, 3, 16, 16}, at::kDouble)).detach();
      net->forward(at::ones({2, 3, 16, 16}, at::kDouble));  // the same running statistics
      factor_all(net, dense, mode);
      at::manual_seed(1);
      const Tensor images = at::randn({4, 3, 16, 16}, at::kDouble);
      EXPECT_GT(worst_of(dense->forward(at::ones({2, 3, 16, 16}, at::kDouble)), before), 1e-3);
      net->forward(at::ones({2, 3, 16, 16}, at::kDouble));
      for (const bool trains : {true, false}) {
        net->train(trains);
        dense->train(trains);
        const Tensor got = net->forward(images), want = dense->forward(images);
        EXPECT_LE(worst_of(got, want), tolerance) << name;
        got.square().sum().backward();
        want.square().sum().backward();
      }
      std::map<std::string, Tensor> wanted;
      for (const auto& [path, value] : parameters_by_path(*dense)) wanted[path] = value.grad();
      for (const auto& [path, value] : buffers_by_path(*dense)) wanted[path] = value;
      for (const auto& [path, value] : parameters_by_path(*net)) {
        ASSERT_TRUE(value.grad().defined()) << path;
        if (wanted.contains(path)) {
          EXPECT_LE(worst_of(value.grad(), wanted.at(path)), 1e-8) << name << ' ' << path;
        }
      }
      for (const auto& [path, value] : buffers_by_path(*net)) {
        if (path.ends_with(".sketch")) continue;
        EXPECT_LE(worst_of(value.to(at::kDouble), wanted.at(path).to(at::kDouble)), 1e-10) << path;
      }
    }
  }
}

TEST(VisionSlots, factored_blocks_that_are_computed_again_keep_their_bits) {
  for (const FactorMode mode : {FactorMode::LowRank, FactorMode::Sketched}) {
    std::vector<std::vector<Tensor>> results;
    for (const Index every : {0, 1}) {
      VisionNet net = net_of("resnet20"), dense = net_of("resnet20");
      factor_all(net, dense, mode);
      net->set_recompute_every(every);
      at::manual_seed(2);
      const Tensor loss = net->forward(at::randn({4, 3, 16, 16})).square().sum();
      loss.backward();
      std::vector<Tensor>& out = results.emplace_back();
      out.push_back(loss.detach());
      for (const Tensor& parameter : net->parameters()) out.push_back(parameter.grad());
      for (const Tensor& buffer : net->buffers()) out.push_back(buffer);
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
    }
  }
}

// Convolutions of channels-last images with such weights differ from others in rounding only.
TEST(VisionSlots, factored_convolutions_take_channels_last_weights) {
  for (const FactorMode mode : {FactorMode::LowRank, FactorMode::Sketched}) {
    VisionNet net = net_of("resnet20"), dense = net_of("resnet20");
    factor_all(net, dense, mode);
    net->eval();
    at::manual_seed(2);
    const Tensor images = at::randn({4, 3, 16, 16});
    const Tensor want = net->forward(images).detach();
    auto* conv = find_layer(*net, "layer1.0.conv1").module->as<SketchedConv2d>();
    ASSERT_NE(conv, nullptr);
    const Tensor weight = conv->effective_weight();
    use_channels_last(*net);
    EXPECT_TRUE(conv->first().is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_LE(worst_of(net->forward(images.contiguous(at::MemoryFormat::ChannelsLast)), want),
              1e-5);
    EXPECT_LE(worst_of(conv->effective_weight(), weight), 1e-6);
  }
}

}  // namespace
}  // namespace hone::nn
