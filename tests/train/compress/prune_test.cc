// SPDX-License-Identifier: Apache-2.0
// Which weights prune() removes, how many, and that they stay removed.
#include "hone/train/compress/prune.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/train/sketch/sketch_checks.h"

namespace hone::nn {
namespace {

using hone::test::refusal;
using test::seeded_normal;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::Tensor;
using torch::nn::Sequential;

Sequential make_net() {
  torch::manual_seed(5);
  return Sequential(torch::nn::Linear(20, 31), torch::nn::ReLU(), torch::nn::Linear(31, 7));
}

Tensor weight_of(Sequential& net, std::size_t at) {
  return dynamic_cast<torch::nn::LinearImpl&>(*net->ptr(at)).weight;
}

PruneOptions with_loss(Sequential net, PruneOptions options) {
  options.score = PruneScore::Gradient;
  options.loss = [net](Index batch) mutable {
    const auto seed = static_cast<std::uint64_t>(batch);
    const Tensor x = seeded_normal({8, 20}, 10 + seed, at::kFloat);
    return net->forward(x).square().mean();
  };
  return options;
}

TEST(Prune, removes_exactly_the_fraction_of_each_layer) {
  for (const bool by_gradient : {false, true}) {
    for (const double sparsity : {0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 0.999, 1.0}) {
      Sequential net = make_net();
      PruneOptions options{.sparsity = sparsity};
      if (by_gradient) options = with_loss(net, options);
      const PruneResult result = prune(*net, options);
      ASSERT_EQ(result.tensors.size(), 2U);
      for (const PrunedTensor& tensor : result.tensors) {
        EXPECT_EQ(tensor.zeros, std::llround(sparsity * static_cast<double>(tensor.weights)))
            << sparsity << " of " << tensor.name;
      }
    }
  }
}

TEST(Prune, removes_the_smallest_by_a_full_sort) {
  Sequential net = make_net();
  const Tensor before = weight_of(net, 0).detach().clone();
  prune(*net, {.sparsity = 0.4});
  const Tensor sorted = std::get<0>(before.abs().flatten().sort());
  const float limit = sorted[std::llround(0.4 * 620)].item<float>();
  const Tensor want = at::where(before.abs() >= limit, before, at::zeros({}));
  EXPECT_TRUE(weight_of(net, 0).equal(want));
}

TEST(Prune, the_score_is_the_sum_of_weight_times_gradient_over_batches) {
  Sequential net = make_net();
  const Tensor before = weight_of(net, 2).detach().clone();
  Tensor score = at::zeros_like(before, at::kDouble);
  const PruneOptions options = with_loss(net, {.sparsity = 0.25, .batches = 3});
  for (Index batch = 0; batch < 3; ++batch) {
    net->zero_grad();
    options.loss(batch).backward();
    score += (before * weight_of(net, 2).grad()).to(at::kDouble).abs();
  }
  const Tensor own_grad = weight_of(net, 0).grad().clone();
  prune(*net, options);
  EXPECT_TRUE(weight_of(net, 0).grad().equal(own_grad)) << "gradients are as they were";
  const double limit = std::get<0>(score.flatten().sort())[std::llround(0.25 * 217)].item<double>();
  EXPECT_EQ(weight_of(net, 2).ne(0).ne(score.ge(limit)).sum().item<std::int64_t>(), 0);
}

TEST(Prune, globally_removes_the_smallest_of_all) {
  Sequential net = make_net();
  {
    const at::NoGradGuard no_grad;
    weight_of(net, 0).mul_(1e-3);
  }
  const PruneResult result = prune(*net, {.sparsity = 0.5, .global = true});
  EXPECT_EQ(result.zeros, std::llround(0.5 * (620 + 217)));
  EXPECT_EQ(result.tensors[0].zeros, result.zeros) << "all of them in the layer of small weights";
}

TEST(Prune, ties_go_by_their_order) {
  for (const bool global : {false, true}) {
    Sequential net(torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
    {
      const at::NoGradGuard no_grad;
      weight_of(net, 0).fill_(1);
    }
    prune(*net, {.sparsity = 0.375, .global = global});
    const std::vector<float> want{0, 0, 0, 1, 1, 1, 1, 1};
    EXPECT_TRUE(weight_of(net, 0).flatten().equal(torch::tensor(want)));
  }
}

// torch::quantile refuses more than 2^24 elements.
TEST(Prune, takes_more_than_16_million_weights) {
  Sequential net(torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
  auto& linear = dynamic_cast<torch::nn::LinearImpl&>(*net->ptr(0));
  linear.weight.set_data(at::linspace(-1, 1, (1 << 24) + 1024).view({-1, 1024}));
  for (const bool global : {false, true}) {
    const PruneResult result = prune(*net, {.sparsity = 0.75, .global = global});
    EXPECT_EQ(result.zeros, std::llround(0.75 * ((1 << 24) + 1024)));
  }
}

TEST(Prune, masks_survive_steps_with_momentum_and_decay) {
  Sequential net = make_net();
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  const auto train = [&](WeightMasks* masks) {
    for (int i = 0; i < 100; ++i) {
      optimizer.zero_grad();
      const Tensor x = seeded_normal({8, 20}, static_cast<std::uint64_t>(i), at::kFloat);
      (net->forward(x) - x.narrow(1, 0, 7)).square().mean().backward();
      optimizer.step();
      if (masks != nullptr) (*masks)->apply();
    }
  };
  train(nullptr);  // the moments of all weights are set
  PruneResult result = prune(*net, {.sparsity = 0.6});
  train(&result.masks);
  for (const WeightMasksImpl::Entry& entry : result.masks->entries()) {
    EXPECT_TRUE(entry.weight.ne(0).eq(entry.mask.ne(0)).all().item<bool>()) << entry.name;
  }
  // From a file, and from the zeros of the weights.
  std::stringstream file;
  torch::save(result.masks, file);
  WeightMasks loaded = masks_of_zeros(*make_net());
  torch::load(loaded, file);
  const WeightMasks found = masks_of_zeros(*net);
  for (std::size_t i = 0; i < 2; ++i) {
    const Tensor want = result.masks->entries()[i].mask;
    EXPECT_TRUE(loaded->entries()[i].mask.equal(want));
    EXPECT_TRUE(found->entries()[i].mask.equal(want));
  }
}

TEST(Prune, a_higher_sparsity_keeps_the_zeros) {
  Sequential net = make_net();
  const PruneSchedule schedule{.last = 0.9, .begin = 10, .end = 50, .every = 10};
  Tensor zeros = weight_of(net, 0).eq(0);
  std::vector<Index> due;
  for (Index step = 0; step < 60; ++step) {
    if (!schedule.is_due(step)) continue;
    due.push_back(step);
    prune(*net, {.sparsity = schedule.sparsity_at(step)});
    const Tensor now = weight_of(net, 0).eq(0);
    EXPECT_TRUE(now.logical_or(zeros.logical_not()).all().item<bool>());
    zeros = now;
  }
  EXPECT_THAT(due, ElementsAre(10, 20, 30, 40, 50));
  EXPECT_EQ(zeros.sum().item<std::int64_t>(), std::llround(0.9 * 620));
  EXPECT_EQ(schedule.sparsity_at(0), 0);
  EXPECT_NEAR(schedule.sparsity_at(30), 0.9 * (1 - 0.125), 1e-12);
}

TEST(Prune, leaves_embeddings_norms_biases_and_exceptions_alone) {
  torch::manual_seed(1);
  Sequential net(torch::nn::Embedding(30, 8), torch::nn::Linear(8, 8),
                 torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})), torch::nn::Linear(8, 30));
  const PruneResult result = prune(*net, {.sparsity = 1, .except = {"^3$"}});
  ASSERT_EQ(result.tensors.size(), 1U);
  EXPECT_EQ(result.tensors[0].name, "1.weight");
  EXPECT_EQ(weight_of(net, 3).eq(0).sum().item<std::int64_t>(), 0);
}

TEST(Prune, refuses_what_it_cannot_do) {
  Sequential net = make_net();
  const Tensor before = weight_of(net, 0).detach().clone();
  EXPECT_THAT(refusal([&] { prune(*net, {.sparsity = 1.5}); }), HasSubstr("sparsity"));
  EXPECT_THAT(refusal([&] { prune(*net, {.score = PruneScore::Gradient}); }), HasSubstr("loss"));
  PruneOptions partial{.score = PruneScore::Gradient};
  partial.loss = [&](Index) { return weight_of(net, 0).sum(); };
  EXPECT_THAT(refusal([&] { prune(*net, partial); }), HasSubstr("2.weight"));
  partial.loss = [&](Index) { return net->forward(at::ones({1, 20})).sum() * NAN; };
  EXPECT_THAT(refusal([&] { prune(*net, partial); }), HasSubstr("finite"));
  Sequential empty{torch::nn::ReLU()};
  EXPECT_THAT(refusal([&] { prune(*empty, {}); }), HasSubstr("no weights"));
  EXPECT_TRUE(weight_of(net, 0).equal(before));
}

}  // namespace
}  // namespace hone::nn
