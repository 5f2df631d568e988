// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/train/surgery/layer_select.h"
#include "hone/train/surgery/layer_surgery.h"
#include "hone/tune/search/layer_search.h"
#include "tests/train/surgery/small_net.h"

namespace hone::nn {
namespace {

using torch::Tensor;
using torch::nn::AnyModule;
using torch::nn::Linear;
using tune::LayerChoice;

// Both factors of a truncated singular value decomposition.
struct LowRankImpl : torch::nn::Module {
  LowRankImpl(const Linear& dense, Index rank) {
    const auto [u, s, v] = at::linalg_svd(dense->weight.detach(), /*full_matrices=*/false);
    a = register_parameter("a", v.slice(0, 0, rank).contiguous());
    b = register_parameter("b", u.slice(1, 0, rank) * s.slice(0, 0, rank));
    bias = register_parameter("bias", dense->bias.detach().clone());
  }
  Tensor forward(const Tensor& x) { return at::linear(at::linear(x, a), b, bias); }
  Tensor a, b, bias;
};
TORCH_MODULE(LowRank);

// A network in which the weights of `down` have rank 2 and the others have full rank.
SmallNet planted_net() {
  at::manual_seed(3);
  SmallNet net;
  const torch::NoGradGuard no_grad;
  for (const char* path : {"layers.0.down", "layers.1.down"}) {
    const auto weight = find_layer(*net, path).module->as<Linear>()->weight;
    weight.copy_(at::randn({8, 2}).matmul(at::randn({2, 16})) / 8);
  }
  return net;
}

tune::LayerSearchResult tune_layers(SmallNet& net, const std::vector<std::string>& layers,
                                    double least_quality) {
  const torch::NoGradGuard no_grad;
  const Snapshot taken = snapshot(*net);
  const Tensor x = at::randn({64, 8}), target = net->forward(x);
  const tune::LayerCallbacks callbacks{
      .apply =
          [&](std::span<const LayerChoice> choices) {
            for (const LayerChoice& choice : choices) {
              const Linear dense(std::dynamic_pointer_cast<torch::nn::LinearImpl>(
                  find_layer(*net, choice.layer).module));
              const Index rank = std::get<Index>(choice.point.at("rank"));
              replace(*net, choice.layer, AnyModule(LowRank(dense, rank)));
            }
          },
      .restore = [&] { restore(taken); },
      .quality =
          [&](double, Index) {
            return 1 - ((net->forward(x) - target).norm() / target.norm()).item<double>();
          },
      .cost =
          [&](Index, double) {
            double size = 0;
            for (const Tensor& parameter : net->parameters()) {
              size += static_cast<double>(parameter.numel());
            }
            return size;
          },
      .was_executed = [&](const std::string& layer) { return was_executed(*net, layer); }};
  const tune::Space space({{"rank", tune::Categorical{{Index{1}, Index{2}, Index{3}, Index{4}}}}});
  const std::vector<tune::LayerGroup> groups{{layers, space}};
  const auto result = tune::search_layers(
      groups, callbacks, {.method = tune::GridMethod{}, .least_quality = least_quality});
  EXPECT_TRUE(net->forward(x).equal(target));  // the model is as before
  if (result.model) {
    callbacks.apply(result.model->choices);
    EXPECT_GE(callbacks.quality(1, 0), least_quality);
  }
  return result;
}

std::vector<std::string> select(SmallNet& net, const char* pattern) {
  std::vector<std::string> paths;
  for (const Layer& layer : select_layers(*net, {.pattern = {pattern}})) {
    paths.push_back(layer.path);
  }
  return paths;
}

TEST(TuneLayers, finds_the_planted_ranks_of_a_model) {
  SmallNet net = planted_net();
  const auto layers = select(net, "layers.*.(up|down)$");
  ASSERT_EQ(layers.size(), 4u);
  const auto result = tune_layers(net, layers, 0.9999);
  ASSERT_TRUE(result.model);
  ASSERT_EQ(result.model->choices.size(), 2u);
  for (const LayerChoice& choice : result.model->choices) {
    EXPECT_THAT(choice.layer, testing::EndsWith("down"));
    EXPECT_EQ(std::get<Index>(choice.point.at("rank")), 2);
  }
}

TEST(TuneLayers, says_when_no_rank_is_good_enough) {
  SmallNet net = planted_net();
  const auto result = tune_layers(net, select(net, "layers.*.up$"), 0.9999);
  EXPECT_FALSE(result.model);
  ASSERT_TRUE(result.nearest);
  EXPECT_EQ(std::get<Index>(result.nearest->choices[0].point.at("rank")), 4);
}

}  // namespace
}  // namespace hone::nn
