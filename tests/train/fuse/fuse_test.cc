// SPDX-License-Identifier: Apache-2.0
// Sites of fusion, their legality, and what fuse() leaves of them, with scripted times.
#include "hone/train/fuse/fuse.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/train/fuse/fusion_patterns.h"
#include "hone/train/nn/fused_linear.h"
#include "hone/train/nn/residual.h"
#include "hone/train/nn/resnet.h"
#include "hone/train/nn/self_attention.h"
#include "hone/train/surgery/layer_surgery.h"
#include "tests/support/error_of.h"
#include "tests/train/scripted_measurer.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using hone::test::ScriptedMeasurer;
using test::relative;
using test::seeded_normal;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

Tensor images(Index count = 2) { return seeded_normal({count, 3, 16, 16}, 7, at::kFloat); }

// Statistics as training leaves them: neither 0 nor 1.
torch::nn::BatchNorm2d used_norm(Index channels) {
  torch::nn::BatchNorm2d norm(channels);
  const at::NoGradGuard no_grad;
  norm->running_mean.copy_(seeded_normal({channels}, 1));
  norm->running_var.copy_(seeded_normal({channels}, 2).square() + 0.1);
  norm->weight.copy_(seeded_normal({channels}, 3));
  norm->bias.copy_(seeded_normal({channels}, 4));
  return norm;
}

std::vector<std::string> patterns_of(torch::nn::Module& model) {
  std::vector<std::string> out;
  for (const FusionSite& site : fusion_sites(model)) out.push_back(site.pattern);
  return out;
}

// The transformer of the reference suite: an embedding, six residual blocks of linear, ReLU,
// linear, and a last linear layer; 28 modules.
struct SuiteNetImpl : torch::nn::Module {
  SuiteNetImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(100, 32));
    layers = register_module("layers", torch::nn::ModuleList());
    for (int i = 0; i < 6; ++i) {
      layers->push_back(
          Sequential(torch::nn::Linear(32, 64), torch::nn::ReLU(), torch::nn::Linear(64, 32)));
    }
    output = register_module("output", torch::nn::Linear(32, 100));
  }
  Tensor forward(const Tensor& ids) {
    Tensor x = embedding->forward(ids);
    for (const auto& layer : *layers) x = x + layer->as<Sequential>()->forward(x);
    return output->forward(x);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::ModuleList layers{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(SuiteNet);

class Fuse : public testing::Test {
 protected:
  Fuse() { measurer_.seconds = {{"separate", 2}, {"fused", 1}}; }
  ScriptedMeasurer measurer_;
};

TEST_F(Fuse, counts_and_applies_the_pairs_of_the_reference_suite) {
  SuiteNet net;
  const Tensor ids = at::arange(24).view({2, 12});
  const Tensor want = net->forward(ids);
  const FusionReport found = analyze_fusion(net, ids, measurer_);
  EXPECT_EQ(found.linear_relu_pairs, 6);
  EXPECT_EQ(found.conv_bn_pairs, 0);
  EXPECT_EQ(found.total_modules, 28);
  EXPECT_EQ(found.fusable_modules, 6);
  EXPECT_NEAR(found.fusion_potential, 0.214, 5e-4);
  EXPECT_EQ(found.count(FusionStatus::Found), 6);
  // The output of the first linear layer, [2, 12, 64] in f32, is written once and read once.
  EXPECT_EQ(found.matches[0].intermediate_bytes, 2 * 2 * 12 * 64 * 4);
  EXPECT_EQ(found.matches[0].separate_ms, 2000);
  EXPECT_EQ(found.matches[0].fused_ms, 1000);
  // A scripted copy takes 1 s for the first layer's input, which it reads and writes.
  EXPECT_DOUBLE_EQ(found.matches[0].predicted_ms, 2000);

  const FusionReport done = fuse(net, ids, measurer_);
  EXPECT_EQ(done.count(FusionStatus::Applied), 6);
  EXPECT_EQ(done.matches.size(), 6U);
  EXPECT_THAT(done.matches[0].layers, ElementsAre("layers.0.0", "layers.0.1"));
  EXPECT_LE(relative(net->forward(ids), want), 1e-6);
  EXPECT_TRUE(net->is_training()) << "modes stay";
  EXPECT_EQ(analyze_fusion(net, ids, measurer_).matches.size(), 0U);
}

TEST_F(Fuse, keeps_weights_trainable_and_tied) {
  torch::nn::Linear first(8, 8), last(8, 8);
  last->weight.set_data(first->weight.detach());  // the same memory
  Sequential net(first, torch::nn::GELU(), last);
  const Tensor x = seeded_normal({5, 8}, 1, at::kFloat);
  net->forward(x).sum().backward();
  const Tensor want = first->weight.grad().clone();
  first->weight.mutable_grad() = Tensor();
  EXPECT_EQ(fuse(net, x, measurer_).count(FusionStatus::Applied), 1);
  net->forward(x).sum().backward();
  EXPECT_LE(relative(first->weight.grad(), want), 1e-6);
  first->weight.set_requires_grad(false);
  EXPECT_FALSE(net->parameters()[0].requires_grad());
  EXPECT_EQ(tied_parameters(*net).size(), 1U);
}

TEST_F(Fuse, rejects_what_is_not_faster_or_not_equal) {
  Sequential net(torch::nn::Linear(8, 8), torch::nn::Tanh());
  const Tensor x = seeded_normal({5, 8}, 1, at::kFloat);
  measurer_.seconds = {{"separate", 1.0}, {"fused", 0.99}};
  measurer_.noise = 0.02;
  const FusionReport slow = fuse(net, x, measurer_);
  EXPECT_EQ(slow.count(FusionStatus::Rejected), 1);
  EXPECT_THAT(slow.matches[0].reason, HasSubstr("not faster"));
  EXPECT_THAT(slow.verdict, HasSubstr("No site"));
  measurer_.seconds = {{"separate", 2}, {"fused", 1}};
  Sequential folded(torch::nn::Conv2d(3, 8, 3), used_norm(8));
  folded->eval();
  const FusionReport inexact = fuse(folded, images(), measurer_, {.tolerance = 1e-12});
  EXPECT_THAT(inexact.matches[0].reason, HasSubstr("above the tolerance"));
  EXPECT_EQ(net->ptr(0)->as<FusedLinear>(), nullptr);
}

// The sites are faster alone, and the model is slower.
TEST_F(Fuse, undoes_everything_where_the_model_became_slower) {
  class SlowWhole final : public Measurer {
   public:
    Measurement measure(std::span<const Contestant> contestants,
                        const MeasureOptions& options) override {
      const bool is_whole = contestants[0].prepare != nullptr;
      sites.seconds = {{"separate", is_whole ? 1.0 : 2.0}, {"fused", is_whole ? 2.0 : 1.0}};
      return sites.measure(contestants, options);
    }
    Spread spread(std::span<const double> samples) const override { return sites.spread(samples); }
    RatioInterval speedup(const Measurement& m, Index impl, Index against) const override {
      return sites.speedup(m, impl, against);
    }
    ScriptedMeasurer sites;
  } measurer;
  Sequential net(torch::nn::Linear(8, 8), torch::nn::ReLU());
  const torch::nn::Module* const before = net->ptr(0).get();
  const FusionReport report = fuse(net, seeded_normal({5, 8}, 1, at::kFloat), measurer);
  EXPECT_EQ(report.count(FusionStatus::Rejected), 1);
  EXPECT_THAT(report.matches[0].reason, HasSubstr("slower"));
  EXPECT_EQ(net->ptr(0).get(), before);
}

TEST_F(Fuse, folds_batch_normalization_with_any_geometry) {
  using Conv = torch::nn::Conv2dOptions;
  const std::vector<Conv> geometries{
      Conv(3, 8, 3), Conv(3, 8, 3).bias(false).padding(1), Conv(3, 8, 3).stride(2).padding(2),
      Conv(3, 8, {1, 3}).dilation(2), Conv(3, 6, 3).groups(3).bias(false)};
  for (const Conv& options : geometries) {
    Sequential net(torch::nn::Conv2d(options), used_norm(options.out_channels()),
                   torch::nn::ReLU());
    net->eval();
    const at::NoGradGuard no_grad;
    const Tensor want = net->forward(images());
    const FusionReport report = fuse(net, images(), measurer_);
    EXPECT_EQ(report.count(FusionStatus::Applied), 1) << report.matches[0].reason;
    EXPECT_EQ(report.matches[0].pattern, "conv_bn_relu");
    EXPECT_LE(report.error, 1e-5);
    EXPECT_LE(relative(net->forward(images()), want), 1e-5);
    EXPECT_EQ(net->forward(images(3)).size(0), 3) << "another batch size";
  }
}

TEST_F(Fuse, replaces_shared_layers_at_their_places) {
  const torch::nn::ReLU shared;
  Sequential net(torch::nn::Linear(4, 8), shared, torch::nn::Linear(8, 8), shared,
                 torch::nn::Linear(8, 2));
  const Tensor x = seeded_normal({3, 4}, 1, at::kFloat);
  const Tensor want = net->forward(x);
  EXPECT_THAT(patterns_of(*net), ElementsAre("linear_relu", "linear_relu"));
  EXPECT_EQ(fuse(net, x, measurer_).count(FusionStatus::Applied), 2);
  EXPECT_LE(relative(net->forward(x), want), 1e-6);
}

struct TripledLinearImpl : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;
  Tensor forward(const Tensor& x) { return 3 * torch::nn::LinearImpl::forward(x); }
};
TORCH_MODULE(TripledLinear);

TEST_F(Fuse, finds_nothing_that_is_no_match) {
  Sequential subclass(TripledLinear(4, 4), torch::nn::ReLU());
  EXPECT_THAT(patterns_of(*subclass), ElementsAre());
  Sequential dropout(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5), torch::nn::ReLU());
  EXPECT_THAT(patterns_of(*dropout), ElementsAre());
  Sequential moved(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::ReLU());
  moved->replace_module("1", torch::nn::Dropout(0.5));  // what is called stays between the two
  EXPECT_THAT(patterns_of(*moved), ElementsAre());
  Sequential alone(torch::nn::Linear(4, 4));
  EXPECT_THAT(patterns_of(*alone), ElementsAre());
}

TEST_F(Fuse, says_why_a_match_is_not_legal) {
  const auto reason_of = [&](Sequential net) {
    const FusionReport report = fuse(net, images(), measurer_);
    EXPECT_EQ(report.matches.size(), 1U);
    EXPECT_EQ(report.count(FusionStatus::Rejected), 1);
    return report.matches.at(0).reason;
  };
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  Sequential training(Conv2d(3, 4, 3), used_norm(4));
  EXPECT_THAT(reason_of(training), HasSubstr("evaluation"));
  Sequential no_statistics(
      Conv2d(3, 4, 3),
      torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(4).track_running_stats(false)));
  no_statistics->eval();
  EXPECT_THAT(reason_of(no_statistics), HasSubstr("running statistics"));
  Sequential reflected(Conv2d(Conv2dOptions(3, 4, 3).padding(1).padding_mode(torch::kReflect)),
                       used_norm(4));
  reflected->eval();
  EXPECT_THAT(reason_of(reflected), HasSubstr("zeros"));
}

TEST_F(Fuse, joins_a_residual_to_the_last_linear_layer) {
  Residual net(Sequential(torch::nn::Linear(8, 16), torch::nn::SiLU(), torch::nn::Linear(16, 8)));
  const Tensor x = seeded_normal({2, 5, 8}, 1, at::kFloat);
  const at::NoGradGuard no_grad;
  const Tensor want = net->forward(x);
  const FusionReport report = fuse(net, x, measurer_);
  EXPECT_THAT(patterns_of(*net), ElementsAre("linear_residual"));
  EXPECT_EQ(report.count(FusionStatus::Applied), 2) << to_json(report).dump(1);
  EXPECT_LE(relative(net->forward(x), want), 1e-6);
}

TEST_F(Fuse, attends_without_scores_in_memory) {
  for (const bool causal : {false, true}) {
    torch::nn::MultiheadAttention from(24, 4);
    SelfAttention attention(*from, causal);
    Sequential net(attention);
    const Tensor x = seeded_normal({2, 9, 24}, 1, at::kFloat);
    const at::NoGradGuard no_grad;
    const Tensor rows = x.transpose(0, 1);
    const Tensor later = at::full({9, 9}, -INFINITY).triu(1);
    const Tensor want =
        std::get<0>(from->forward(rows, rows, rows, {}, false, causal ? later : Tensor()))
            .transpose(0, 1);
    EXPECT_LE(relative(net->forward(x), want), 1e-6);
    EXPECT_EQ(fuse(net, x, measurer_).count(FusionStatus::Applied), 1);
    EXPECT_LE(relative(net->forward(x), want), 1e-6);
  }
}

TEST_F(Fuse, lets_groups_of_query_heads_share_keys) {
  SelfAttention attention(SelfAttentionOptions{.dim = 24, .heads = 6, .kv_heads = 2});
  Sequential net(attention);
  const Tensor x = seeded_normal({2, 9, 24}, 1, at::kFloat);
  const Tensor want = net->forward(x);
  EXPECT_EQ(fuse(net, x, measurer_).count(FusionStatus::Applied), 1);
  EXPECT_LE(relative(net->forward(x), want), 1e-6);
  EXPECT_THAT(refusal([] { SelfAttention bad(SelfAttentionOptions{.dim = 24, .heads = 5}); }),
              HasSubstr("divide"));
}

VisionSpec narrow(const char* name, Index side) {
  return {
      .name = name, .width = 8, .channels = 3, .height = side, .image_width = side, .classes = 5};
}

TEST_F(Fuse, folds_a_resnet_and_keeps_it_trainable) {
  for (const char* name : {"resnet20", "resnet18", "resnet50"}) {
    ResNet net(narrow(name, 32), 3);
    for (const NamedTensor& buffer : buffers_by_path(*net)) {
      const at::NoGradGuard no_grad;
      if (buffer.name.ends_with("running_var")) Tensor(buffer.value).uniform_(0.5, 2);
      if (buffer.name.ends_with("running_mean")) Tensor(buffer.value).normal_();
    }
    net->eval();
    const Tensor x = seeded_normal({2, 3, 32, 32}, 5, at::kFloat);
    const auto evaluated = [&] {
      const at::NoGradGuard no_grad;
      return net->forward(x);
    };
    const Tensor want = evaluated();
    const FusionReport report = fuse(net, x, measurer_);
    EXPECT_EQ(report.count(FusionStatus::Rejected), 0) << to_json(report).dump(1);
    EXPECT_EQ(report.conv_bn_pairs, static_cast<Index>(report.matches.size()));
    EXPECT_LE(relative(evaluated(), want), 1e-5) << name;
    EXPECT_GT(relative(evaluated(), want), 0) << "nothing was folded";
    EXPECT_LE(relative(net->forward(x), want), 0) << "with gradients, nothing is folded";
    // Folded weights follow the layers: statistics change in training.
    net->train();
    net->forward(x);
    net->eval();
    const Tensor fresh = net->forward(x);
    EXPECT_GT(relative(fresh, want), 1e-3);
    EXPECT_LE(relative(evaluated(), fresh), 1e-5);
  }
}

TEST_F(Fuse, needs_an_example_and_one_tensor) {
  Sequential net(torch::nn::Linear(4, 4), torch::nn::ReLU());
  EXPECT_THAT(refusal([&] { fuse(net, at::empty({0, 4}), measurer_); }), HasSubstr("empty"));
}

TEST(FusedLinear, has_values_and_gradients_of_the_separate_layers) {
  const auto separate = [](Activation activation, const Tensor& z) {
    return detail::activated(activation, z);
  };
  for (const Activation activation :
       {Activation::None, Activation::Relu, Activation::Gelu, Activation::GeluTanh,
        Activation::Silu, Activation::Sigmoid, Activation::Tanh}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      torch::nn::Linear plain(torch::nn::LinearOptions(12, 20));
      plain->to(type);
      FusedLinear fused(*plain, activation);
      const Tensor x = seeded_normal({3, 5, 12}, 1, type).requires_grad_();
      const Tensor by_y = seeded_normal({3, 5, 20}, 2, type);
      const auto gradients = [&](const Tensor& y) {
        return torch::autograd::grad({y}, {x, plain->weight, plain->bias}, {by_y});
      };
      const Tensor got = fused->forward(x), want = separate(activation, plain->forward(x));
      const double tolerance = type == at::kFloat ? 2e-6 : 1e-13;
      EXPECT_LE(relative(got, want), tolerance);
      const auto got_grads = gradients(got), want_grads = gradients(want);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_LE(relative(got_grads[i], want_grads[i]), 2 * tolerance);
      }
      const at::NoGradGuard no_grad;
      EXPECT_LE(relative(fused->forward(x), want), tolerance);
      const auto copy = std::dynamic_pointer_cast<FusedLinearImpl>(fused->clone());
      EXPECT_LE(relative(copy->forward(x), want), tolerance);
      EXPECT_FALSE(copy->weight.is_alias_of(fused->weight));
    }
  }
}

}  // namespace
}  // namespace hone::nn
