// SPDX-License-Identifier: Apache-2.0
#include "hone/train/sketch/random_feature_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>

#include <functional>
#include <sstream>

#include "hone/train/nn/load_weights.h"
#include "hone/train/surgery/slot.h"
#include "hone/train/tensor_file.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/sketch/attention_oracle.h"

namespace hone::nn {
namespace {

using hone::test::error_of;
using test::all_pairs;
using test::randn;
using test::relative_error;
using torch::Tensor;

RandomFeatureAttentionOptions small(bool causal = false) {
  return {.embed_dim = 12, .heads = 3, .features = 16, .causal = causal, .seed = 5};
}

Tensor tokens(Index count, Index batch = 2) { return torch::randn({batch, count, 12}); }

class RandomFeatureAttentionLayer : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(3); }
};

TEST_F(RandomFeatureAttentionLayer, is_projections_around_attention_by_all_pairs) {
  for (const bool causal : {false, true}) {
    RandomFeatureAttention layer(small(causal));
    layer->to(torch::kDouble);
    {
      const torch::NoGradGuard no_grad;
      layer->in_proj_bias.normal_();
      layer->out_proj_bias.normal_();
    }
    const Tensor query = randn({2, 9, 12}), key = randn({2, causal ? 9 : 7, 12});
    const Tensor value = randn({2, key.size(1), 12});
    const auto weights = layer->in_proj_weight.chunk(3), biases = layer->in_proj_bias.chunk(3);
    const auto heads = [&](const Tensor& x, std::size_t part) {
      return (at::matmul(x, weights[part].t()) + biases[part]).view({2, x.size(1), 3, 4});
    };
    const Tensor attended = all_pairs(heads(query, 0), heads(key, 1), heads(value, 2), layer->omega,
                                      {FeatureKind::Softmax, causal, 0});
    const Tensor want =
        at::matmul(attended.flatten(2), layer->out_proj_weight.t()) + layer->out_proj_bias;
    EXPECT_LE(relative_error(layer->forward(query, key, value), want), 1e-10);
    layer->to(torch::kFloat);
    EXPECT_LE(relative_error(layer->forward(query.to(torch::kFloat), key.to(torch::kFloat),
                                            value.to(torch::kFloat)),
                             want),
              1e-4);
  }
}

TEST_F(RandomFeatureAttentionLayer, draws_nothing_from_the_global_generator_and_prints_nothing) {
  const auto state = [] { return at::detail::getDefaultCPUGenerator().get_state(); };
  RandomFeatureAttentionOptions options = small(true);
  options.position_sines = 2;
  options.dropout = 0.5;
  const Tensor x = tokens(5), before = state();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  RandomFeatureAttention layer(options);
  layer->redraw();
  layer->eval();
  layer->forward(x, x, x).sum().backward();
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(state().equal(before));
}

TEST_F(RandomFeatureAttentionLayer, layers_differ_and_seeds_repeat) {
  const auto make = [](std::uint64_t seed, std::uint32_t layer) {
    RandomFeatureAttentionOptions options = small();
    options.position_sines = 2;
    options.seed = seed;
    options.layer = layer;
    return RandomFeatureAttention(options);
  };
  const auto first = make(1, 0), again = make(1, 0), next = make(1, 1), other = make(2, 0);
  EXPECT_TRUE(first->omega.equal(again->omega));
  EXPECT_TRUE(first->in_proj_weight.equal(again->in_proj_weight));
  EXPECT_TRUE(first->position->noise.equal(again->position->noise));
  for (const auto& layer : {next, other}) {
    EXPECT_FALSE(first->omega.equal(layer->omega));
    EXPECT_FALSE(first->in_proj_weight.equal(layer->in_proj_weight));
    EXPECT_FALSE(first->position->noise.equal(layer->position->noise));
  }
}

TEST_F(RandomFeatureAttentionLayer, weights_start_within_the_bound_of_xavier) {
  const RandomFeatureAttention layer(RandomFeatureAttentionOptions{.embed_dim = 96, .heads = 4});
  const double bound = std::sqrt(6.0 / (96 + 96));
  for (const Tensor& weight : {layer->in_proj_weight, layer->out_proj_weight}) {
    EXPECT_LE(weight.abs().max().item<double>(), bound);
    EXPECT_NEAR(weight.var().item<double>(), bound * bound / 3, bound * bound / 30);
  }
  EXPECT_EQ(layer->in_proj_bias.abs().sum().item<double>(), 0);
}

TEST_F(RandomFeatureAttentionLayer, redraw_changes_features_and_noise_and_goes_on_after_loading) {
  RandomFeatureAttentionOptions options = small();
  options.position_sines = 2;
  RandomFeatureAttention layer(options), loaded(options);
  const Tensor omega = layer->omega.clone(), noise = layer->position->noise.clone();
  layer->redraw();
  EXPECT_FALSE(layer->omega.equal(omega));
  EXPECT_FALSE(layer->position->noise.equal(noise));
  std::stringstream file;
  torch::save(layer, file);
  torch::load(loaded, file);
  const Tensor x = tokens(4);
  EXPECT_TRUE(loaded->forward(x, x, x).equal(layer->forward(x, x, x)));
  loaded->redraw();
  layer->redraw();
  EXPECT_TRUE(loaded->omega.equal(layer->omega));
  EXPECT_TRUE(loaded->forward(x, x, x).equal(layer->forward(x, x, x)));
}

TEST_F(RandomFeatureAttentionLayer, positions_are_part_of_the_module) {
  RandomFeatureAttentionOptions options = small();
  options.position_sines = 2;
  options.position_realizations = 7;
  RandomFeatureAttention layer(options);
  EXPECT_EQ(layer->omega.sizes(), (std::vector<Index>{16, 7}));
  EXPECT_TRUE(layer->named_parameters().contains("position.freqs"));
  EXPECT_TRUE(layer->named_buffers().contains("position.noise"));
  layer->to(torch::kDouble);
  EXPECT_EQ(layer->position->noise.scalar_type(), torch::kDouble);
  const Tensor x = randn({1, 6, 12});
  layer->forward(x, x, x).square().sum().backward();
  for (const auto& parameter : layer->named_parameters()) {
    ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
    EXPECT_GT(parameter.value().grad().abs().max().item<double>(), 0) << parameter.key();
  }
  const auto copy = std::dynamic_pointer_cast<RandomFeatureAttentionImpl>(layer->clone());
  EXPECT_TRUE(copy->forward(x, x, x).equal(layer->forward(x, x, x)));
  copy->redraw();
  EXPECT_FALSE(copy->omega.equal(layer->omega));
}

TEST_F(RandomFeatureAttentionLayer, later_tokens_do_not_change_a_bit_of_earlier_outputs) {
  RandomFeatureAttention layer(small(true));
  Tensor x = tokens(80);
  const Tensor before = layer->forward(x, x, x);
  x = x.clone();
  x.slice(1, 70) *= 5;
  const Tensor after = layer->forward(x, x, x);
  EXPECT_TRUE(after.slice(1, 0, 70).equal(before.slice(1, 0, 70)));
  EXPECT_FALSE(after.slice(1, 70).equal(before.slice(1, 70)));
}

TEST_F(RandomFeatureAttentionLayer, steps_give_what_the_whole_gives) {
  for (const Index sines : {0, 3}) {
    for (const FeatureKind kind : {FeatureKind::Softmax, FeatureKind::Relu}) {
      RandomFeatureAttentionOptions options = small(true);
      options.kind = kind;
      options.eps = kind == FeatureKind::Relu ? 1e-3 : 0;
      options.position_sines = sines;
      options.dropout = 0.5;  // does not act on steps
      RandomFeatureAttention layer(options);
      layer->eval();
      const Tensor x = tokens(70), whole = layer->forward(x, x, x);
      layer->train();
      LinearAttentionState state;
      std::vector<Tensor> parts{layer->forward_step(x.slice(1, 0, 40), state)};  // a prompt
      for (Index t = 40; t < 70; ++t) {
        parts.push_back(layer->forward_step(x.slice(1, t, t + 1), state));
      }
      EXPECT_LE(relative_error(at::cat(parts, 1), whole), 1e-4);
      EXPECT_EQ(state.position, 70);
      EXPECT_EQ(state.z.sizes(), (std::vector<Index>{2, 3, 5, 16}));
      EXPECT_FALSE(parts[1].requires_grad());
    }
  }
}

TEST_F(RandomFeatureAttentionLayer,
       keeps_its_counters_in_bytes_when_it_or_its_parent_is_converted) {
  RandomFeatureAttentionOptions options = small();
  options.position_sines = 2;
  RandomFeatureAttention layer(options);
  for (int i = 0; i < 300; ++i) layer->redraw();
  const Tensor draws = layer->draws.clone(), noises = layer->position->draws.clone();
  torch::nn::Sequential parent;
  parent->push_back(layer);
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16, at::kHalf, at::kFloat}) {
    parent->to(type);
    layer->to(at::Device(at::kCPU), type);
    EXPECT_EQ(layer->omega.scalar_type(), type);
    EXPECT_TRUE(layer->draws.equal(draws)) << type;
    EXPECT_TRUE(layer->position->draws.equal(noises)) << type;
  }
  const hone::test::TemporaryFolder folder;
  std::vector<NamedTensor> tensors = parameters_by_path(*layer);
  for (const NamedTensor& buffer : buffers_by_path(*layer)) tensors.push_back(buffer);
  write_tensors(folder.path() / "layer.safetensors", tensors);
  options.seed = 8;
  RandomFeatureAttention other(options);
  load_weights(*other, folder.path() / "layer.safetensors", {.strict = true});
  const Tensor x = tokens(9);
  EXPECT_TRUE(other->forward(x, x, x).equal(layer->forward(x, x, x)));
  EXPECT_TRUE(other->draws.equal(draws));
}

// Its sums are those of other features.
TEST_F(RandomFeatureAttentionLayer, a_state_does_not_outlive_its_features) {
  RandomFeatureAttention layer(small(true));
  layer->eval();
  const Tensor x = tokens(8);
  LinearAttentionState state, fresh;
  layer->forward_step(x.slice(1, 0, 4), state);
  const LinearAttentionState copy = state.clone();
  layer->redraw();
  LinearAttentionState old = copy.clone();
  EXPECT_NE(error_of([&] {
              layer->forward_step(x.slice(1, 4, 5), old);
            }).find("features that redraw() has replaced"),
            std::string::npos);
  EXPECT_TRUE(old.z.equal(copy.z));
  EXPECT_TRUE(layer->forward_step(x, fresh).isfinite().all().item<bool>());
}

TEST_F(RandomFeatureAttentionLayer, padding_is_as_if_it_were_not_there) {
  for (const bool causal : {false, true}) {
    RandomFeatureAttention layer(small(causal));
    const Tensor x = tokens(10, 1), padded = at::cat({x, torch::full({1, 5, 12}, 1e6)}, 1);
    const Tensor mask = torch::arange(15).lt(10).unsqueeze(0);
    const Tensor want = layer->forward(x, x, x);
    const AttentionMasks masks{.keys = mask, .queries = mask};
    const Tensor got = layer->forward(padded, padded, padded, masks);
    EXPECT_LE(relative_error(got.slice(1, 0, 10), want), 1e-5);
    EXPECT_TRUE(got.slice(1, 10).equal(layer->out_proj_bias.expand({1, 5, 12})));
    // The same mask as one of pairs, with and without what is above the diagonal.
    Tensor pairs = mask.unsqueeze(2).logical_and(mask.unsqueeze(1));
    EXPECT_TRUE(layer->forward(padded, padded, padded, {.pairs = pairs}).equal(got));
    if (causal) {
      EXPECT_TRUE(layer->forward(padded, padded, padded, {.pairs = pairs.tril()[0]}).equal(got));
    }
  }
}

TEST_F(RandomFeatureAttentionLayer, a_mask_that_does_not_separate_is_refused) {
  RandomFeatureAttention layer(small()), causal(small(true));
  const Tensor x = tokens(4);
  const Tensor band = torch::ones({4, 4}, torch::kBool).tril(1).triu(-1);
  const auto message = [&](RandomFeatureAttention& of, const Tensor& pairs) {
    return error_of([&] { of->forward(x, x, x, {.pairs = pairs}); });
  };
  const std::string wrong =
      "[RandomFeatureAttention] The mask of pairs is not an outer product of masks of queries and "
      "keys";
  EXPECT_EQ(message(layer, band), wrong + ".");
  EXPECT_EQ(message(causal, band), wrong + ", on and below the diagonal.");
  EXPECT_EQ(message(layer, torch::ones({4, 4}, torch::kBool).tril()), wrong + ".");
  EXPECT_EQ(message(layer, torch::ones({4, 5}, torch::kBool)),
            "[RandomFeatureAttention] expected a bool mask of pairs [4, 4], got Bool [4, 5]");
}

TEST_F(RandomFeatureAttentionLayer, dropout_drops_its_share_of_the_attention_in_training) {
  RandomFeatureAttentionOptions options = small();
  options.dropout = 0.3;
  RandomFeatureAttention layer(options);
  {
    const torch::NoGradGuard no_grad;
    layer->out_proj_weight.copy_(torch::eye(12));
  }
  const Tensor x = tokens(500);
  layer->eval();
  const Tensor kept = layer->forward(x, x, x);
  EXPECT_TRUE(layer->forward(x, x, x).equal(kept));
  layer->train();
  const Tensor dropped = layer->forward(x, x, x);
  const double n = static_cast<double>(dropped.numel());
  const Tensor is_zero = dropped.eq(0);
  EXPECT_NEAR(is_zero.to(torch::kDouble).mean().item<double>(), 0.3, 5 * std::sqrt(0.21 / n));
  EXPECT_LE(relative_error(dropped, (kept / 0.7).masked_fill(is_zero, 0)), 1e-5);
}

torch::nn::MultiheadAttention multihead(double dropout = 0.25) {
  return torch::nn::MultiheadAttention(
      torch::nn::MultiheadAttentionOptions(12, 3).dropout(dropout));
}

TEST_F(RandomFeatureAttentionLayer, from_multihead_has_its_weights_and_approaches_its_output) {
  auto exact = multihead();
  {
    const torch::NoGradGuard no_grad;
    exact->in_proj_bias.normal_(0, 0.3);
    exact->out_proj->bias.normal_(0, 0.3);
  }
  exact->to(torch::kDouble);
  exact->eval();
  exact->out_proj->bias.set_requires_grad(false);
  RandomFeatureAttentionOptions options;
  options.features = 8192;
  RandomFeatureAttention layer = from_multihead(exact, options);
  EXPECT_TRUE(layer->in_proj_weight.equal(exact->in_proj_weight));
  EXPECT_FALSE(layer->in_proj_weight.is_same(exact->in_proj_weight));
  EXPECT_EQ(layer->options.heads, 3);
  EXPECT_EQ(layer->options.dropout, 0.25);
  EXPECT_FALSE(layer->is_training());
  EXPECT_FALSE(layer->out_proj_bias.requires_grad());
  EXPECT_TRUE(layer->in_proj_bias.requires_grad());
  const Tensor x = randn({2, 20, 12}, 0.5), first = x.transpose(0, 1);
  const Tensor want = std::get<0>(exact->forward(first, first, first)).transpose(0, 1);
  EXPECT_LE(relative_error(layer->forward(x, x, x), want), 0.05);
}

TEST_F(RandomFeatureAttentionLayer, from_multihead_names_what_it_cannot_take) {
  using Options = torch::nn::MultiheadAttentionOptions;
  EXPECT_EQ(
      error_of([] { from_multihead(torch::nn::MultiheadAttention(Options(12, 3).kdim(8)), {}); }),
      "[RandomFeatureAttention] Attention whose keys or values have a width of their own is "
      "not supported.");
  for (const auto& given : {Options(12, 3).add_zero_attn(true), Options(12, 3).add_bias_kv(true)}) {
    EXPECT_EQ(error_of([&] { from_multihead(torch::nn::MultiheadAttention(given), {}); }),
              "[RandomFeatureAttention] Attention with bias_k, bias_v or add_zero_attn is not "
              "supported.");
  }
  EXPECT_EQ(error_of([] { from_multihead(torch::nn::MultiheadAttention(nullptr), {}); }),
            "[from_multihead] expected a MultiheadAttention, got an empty module holder");
  torch::nn::MultiheadAttention damaged(Options(12, 3));
  const torch::NoGradGuard no_grad;
  damaged->out_proj->weight[1][2] = std::nan("");
  EXPECT_EQ(error_of([&] { from_multihead(damaged, {}); }),
            "[from_multihead] The weights have NaN or infinity in them.");
}

TEST_F(RandomFeatureAttentionLayer, names_what_is_wrong) {
  const auto message = [](const std::function<void(RandomFeatureAttentionOptions&)>& spoil) {
    RandomFeatureAttentionOptions options = small();
    spoil(options);
    return error_of([&] { RandomFeatureAttention layer(options); });
  };
  const std::string begin = "[RandomFeatureAttention] expected ";
  EXPECT_EQ(message([](auto& o) { o.heads = 0; }),
            begin + "embed_dim, heads and features of at least 1, got 12, 0 and 16");
  EXPECT_EQ(message([](auto& o) { o.heads = 5; }), begin + "heads that divide 12, got 5");
  EXPECT_EQ(message([](auto& o) { o.dropout = 1; }), begin + "dropout in [0, 1), got 1");
  EXPECT_EQ(message([](auto& o) { o.eps = -1; }), begin + "a finite eps >= 0, got -1");
  EXPECT_EQ(message([](auto& o) { o.kind = static_cast<FeatureKind>(9); }),
            begin + "a kind of features, got 9");
  EXPECT_EQ(message([](auto& o) { o.causal = true, o.eps = 1e-5; }),
            "[RandomFeatureAttention] Causal softmax features have no eps, because it would be "
            "relative to later keys.");
  RandomFeatureAttention layer(small());
  const Tensor x = torch::zeros({2, 4, 11});
  EXPECT_EQ(error_of([&] { layer->forward(x, x, x); }),
            begin + "[batch, tokens, 12], got [2, 4, 11]");
  LinearAttentionState state;
  EXPECT_EQ(error_of([&] { layer->forward_step(tokens(1), state); }),
            "[linear_attention] Only causal attention has a state.");
}

TEST_F(RandomFeatureAttentionLayer, learns_without_bias_in_bfloat16_weights) {
  RandomFeatureAttentionOptions options = small(true);
  options.bias = false;
  RandomFeatureAttention layer(options);
  EXPECT_EQ(layer->parameters().size(), 2u);
  layer->to(torch::kBFloat16);
  const Tensor x = tokens(12).to(torch::kBFloat16);
  const Tensor out = layer->forward(x, x, x);
  EXPECT_EQ(out.scalar_type(), torch::kBFloat16);
  out.square().sum().backward();
  for (const auto& item : layer->named_parameters()) {
    const Tensor grad = item.value().grad();
    ASSERT_TRUE(grad.defined()) << item.key();
    EXPECT_TRUE(grad.isfinite().all().item<bool>()) << item.key();
    EXPECT_GT(grad.abs().max().item<double>(), 0) << item.key();
  }
}

}  // namespace
}  // namespace hone::nn
