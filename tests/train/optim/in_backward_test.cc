// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/in_backward.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "hone/core/error.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"

namespace hone::optim {
namespace {

using Tensors = std::vector<torch::Tensor>;

Tensors make_layers(std::int64_t width, int depth) {
  torch::manual_seed(8);
  Tensors layers;
  for (int i = 0; i < depth; ++i) {
    layers.push_back((torch::randn({width, width}) * 0.1).requires_grad_());
  }
  return layers;
}

torch::Tensor loss_of(const Tensors& layers, int step) {
  torch::manual_seed(100 + step);
  torch::Tensor x = torch::randn({4, layers[0].size(0)});
  for (const torch::Tensor& layer : layers) x = torch::tanh(x.mm(layer));
  return x.square().sum();
}

template <class Optimizer, class Options>
InBackwardOptimizer::Make in_backward_maker(const Options& options) {
  return [options](Tensors one) { return std::make_unique<Optimizer>(std::move(one), options); };
}

TEST(InBackward, gives_the_bits_of_a_step_after_backward) {
  Tensors apart = make_layers(24, 5), inside = make_layers(24, 5);
  TAM optimizer(apart, TAMOptions(0.01));
  InBackwardOptimizer stepper(inside, in_backward_maker<TAM>(TAMOptions(0.01)));
  for (int t = 0; t < 20; ++t) {
    loss_of(apart, t).backward();
    optimizer.step();
    optimizer.zero_grad();
    loss_of(inside, t).backward();
    for (const torch::Tensor& layer : inside) EXPECT_FALSE(layer.grad().defined());
  }
  for (std::size_t i = 0; i < apart.size(); ++i) EXPECT_TRUE(apart[i].equal(inside[i]));
  EXPECT_EQ(stepper.steps(), std::vector<Index>(5, 20));
}

TEST(InBackward, rounds_each_parameter_by_its_number) {
  const auto narrow = [] {
    Tensors layers;
    for (const torch::Tensor& layer : make_layers(24, 5)) {
      layers.push_back(layer.detach().to(at::kBFloat16).requires_grad_());
    }
    return layers;
  };
  const auto loss = [](const Tensors& layers, int step) {
    torch::manual_seed(100 + step);
    torch::Tensor x = torch::randn({4, 24}).to(at::kBFloat16);
    for (const torch::Tensor& layer : layers) x = torch::tanh(x.mm(layer));
    return x.square().sum();
  };
  Tensors apart = narrow(), inside = narrow();
  const auto options = AdamWOptions(0.01).state_dtype(StateDtype::BFloat16);
  AdamW optimizer(apart, options);
  InBackwardOptimizer stepper(inside, in_backward_maker<AdamW>(options));
  for (int t = 0; t < 5; ++t) {
    loss(apart, t).backward();
    optimizer.step();
    optimizer.zero_grad();
    loss(inside, t).backward();
  }
  for (std::size_t i = 0; i < apart.size(); ++i) EXPECT_TRUE(apart[i].equal(inside[i])) << i;
}

TEST(InBackward, refuses_parameters_that_have_a_hook_already) {
  const Tensors layers = make_layers(8, 2);
  const auto adamw = in_backward_maker<AdamW>(AdamWOptions(1e-3));
  const auto make = [&](const Tensors& params) {
    return hone::test::refusal([&] { const InBackwardOptimizer stepper(params, adamw); });
  };
  EXPECT_THAT(make({layers[0], layers[1], layers[0]}), testing::HasSubstr("twice"));
  {
    const InBackwardOptimizer first(layers, adamw);
    EXPECT_THAT(make(layers), testing::HasSubstr("hook"));
  }
  EXPECT_EQ(make(layers), "");
}

TEST(InBackward, holds_one_gradient_at_a_time) {
  const std::int64_t width = 256;
  const int depth = 12;
  const auto peak = [&](bool in_backward) {
    const memory::MemoryMeter meter;
    Tensors layers = make_layers(width, depth);
    std::unique_ptr<InBackwardOptimizer> stepper;
    if (in_backward) {
      stepper = std::make_unique<InBackwardOptimizer>(layers,
                                                      in_backward_maker<AdamW>(AdamWOptions(1e-3)));
      loss_of(layers, 0).backward();  // state is there afterwards
    }
    const Index before = meter.use().current;
    meter.reset_peak();
    loss_of(layers, 1).backward();
    return meter.use().peak - before;
  };
  const Index one = width * width * Index{sizeof(float)};
  EXPECT_GE(peak(false), depth * one);
  EXPECT_LE(peak(true), 4 * one);
}

TEST(InBackward, stops_when_it_goes) {
  Tensors layers = make_layers(8, 2);
  { InBackwardOptimizer stepper(layers, in_backward_maker<AdamW>(AdamWOptions(1e-3))); }
  loss_of(layers, 0).backward();
  EXPECT_TRUE(layers[0].grad().defined());
}

TEST(InBackward, takes_new_rates) {
  Tensors layers = make_layers(8, 2);
  InBackwardOptimizer stepper(layers, in_backward_maker<AdamW>(AdamWOptions(1e-3).weight_decay(0)));
  stepper.set_lr(0);
  const torch::Tensor before = layers[1].detach().clone();
  loss_of(layers, 0).backward();
  EXPECT_TRUE(layers[1].equal(before));
}

TEST(InBackward, refuses_what_needs_all_gradients) {
  const Tensors layers = make_layers(8, 2);
  const auto error_of = [&](const InBackwardOptimizer::Make& make, InBackwardOptions options) {
    try {
      const InBackwardOptimizer stepper(layers, make, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::Unsupported);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  const auto adamw = in_backward_maker<AdamW>(AdamWOptions(1e-3));
  EXPECT_THAT(error_of(adamw, {.accumulation_steps = 2}), HasSubstr("one backward pass"));
  EXPECT_THAT(error_of(adamw, {.clip_norm = 1}), HasSubstr("norm clip"));
  EXPECT_THAT(error_of(adamw, {.loss_scaling = true}), HasSubstr("loss scaling"));
  EXPECT_THAT(error_of(in_backward_maker<TAM>(TAMOptions(0.1).scope(TAMScope::Model)), {}),
              HasSubstr("scope Model"));
  for (const torch::Tensor& layer : layers) EXPECT_FALSE(layer.grad().defined());
}

}  // namespace
}  // namespace hone::optim
