// SPDX-License-Identifier: Apache-2.0
// fp16's numerics on the CPU.
#include "hone/train/amp/emulated_half.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "hone/core/error.h"
#include "hone/train/amp/grad_scaler.h"

namespace hone::amp {
namespace {

torch::Tensor through_aten(const torch::Tensor& x) { return x.to(at::kHalf).to(at::kFloat); }

TEST(EmulatedHalf, rounds_as_atens_conversion_in_every_layout) {
  torch::manual_seed(2);
  const torch::Tensor x = torch::randn({200, 301}) * torch::exp(torch::randn({200, 301}) * 8);
  for (const torch::Tensor& each : {x, x.t(), x.slice(1, 3, 90, 2), x[7], torch::zeros({0})}) {
    const torch::Tensor rounded = round_through_half(each);
    EXPECT_TRUE(rounded.equal(through_aten(each)));
    EXPECT_EQ(rounded.sizes(), each.sizes());
  }
  EXPECT_TRUE(std::isinf(round_through_half(torch::full({1}, 65520.0f)).item<float>()));
  EXPECT_EQ(round_through_half(torch::full({1}, 65519.0f)).item<float>(), 65504);
}

TEST(EmulatedHalf, rounds_the_gradient_on_its_way_back) {
  const torch::Tensor x = torch::tensor({1.0f, 2.0f, 3.0f, 4.0f}).requires_grad_();
  const torch::Tensor gradient = torch::tensor({1e-9f, 1.0f / 3, 1e6f, 3e-8f});
  round_through_half(x).backward(gradient);
  EXPECT_TRUE(x.grad().equal(through_aten(gradient)));
  EXPECT_EQ(x.grad()[0].item<float>(), 0);
  EXPECT_TRUE(std::isinf(x.grad()[2].item<float>()));
}

TEST(EmulatedHalf, refuses_what_it_does_not_emulate) {
  EXPECT_THROW(round_through_half(torch::ones({2}, at::kDouble)), Error);
}

// Gradients log-uniform in [1e-9, 1e-7], scaled as a loss scale scales them, handed back through
// fp16. Losses at σ = 1: |g| ≤ 2^-25 = 2.98e-8, which is 74 % of the logarithmic range.
double lost_fraction(double scale) {
  torch::manual_seed(5);
  const torch::Tensor gradient = torch::exp(torch::rand({100'000}) * std::log(100.0)) * 1e-9;
  const torch::Tensor x = torch::zeros({100'000}).requires_grad_();
  GradScaler scaler({.init_scale = scale});
  scaler.scale((round_through_half(x) * gradient).sum()).backward();
  return (x.grad() == 0).to(at::kDouble).mean().item<double>();
}

TEST(EmulatedHalf, small_gradients_are_lost_without_a_scale_and_kept_with_it) {
  EXPECT_GT(lost_fraction(1), 0.5);
  EXPECT_LT(lost_fraction(65536), 0.001);
  // The closed form, within 5 standard errors of 10⁵ draws.
  const double expected = std::log(0x1p-25 / 1e-9) / std::log(100.0);
  EXPECT_NEAR(lost_fraction(1), expected, 5 * std::sqrt(expected * (1 - expected) / 1e5));
}

torch::nn::Sequential make_narrow_layers() {
  torch::manual_seed(4);
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 2));
}

TEST(EmulatedHalf, wraps_layers_and_rounds_at_every_boundary) {
  torch::nn::Sequential layers = make_narrow_layers();
  EmulatedHalf model(layers);
  EXPECT_EQ(model->parameters().size(), 4u);
  const torch::Tensor x = torch::randn({3, 6});
  torch::Tensor expected = through_aten(x);
  for (torch::nn::AnyModule& layer : *layers) expected = through_aten(layer.forward(expected));
  const torch::Tensor out = model->forward(x);
  EXPECT_TRUE(out.equal(expected));
  out.sum().backward();
  for (const torch::Tensor& parameter : layers->parameters()) {
    EXPECT_TRUE(parameter.grad().equal(through_aten(parameter.grad())));
  }
}

TEST(EmulatedHalf, leaves_the_layers_as_they_were_when_it_goes) {
  torch::nn::Sequential layers = make_narrow_layers();
  { EmulatedHalf model(layers); }
  layers->forward(torch::randn({3, 6})).sum().backward();
  const torch::Tensor gradient = layers[0]->as<torch::nn::Linear>()->weight.grad();
  EXPECT_FALSE(gradient.equal(through_aten(gradient)));
}

TEST(EmulatedHalf, without_layers_it_is_a_boundary_inside_a_model) {
  torch::nn::Sequential model(torch::nn::Linear(6, 5), EmulatedHalf());
  const torch::Tensor out = model->forward(torch::randn({3, 6}));
  EXPECT_TRUE(out.equal(through_aten(out)));
}

// A scale that is too large overflows in the emulated backward pass, the scaler backs off until it
// fits, and then the model trains.
TEST(EmulatedHalf, a_scaler_finds_the_scale_at_which_a_model_trains) {
  EmulatedHalf model(make_narrow_layers());
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 0x1p30});
  const torch::Tensor x = torch::randn({16, 6}), y = torch::randn({16, 2});
  double first_loss = 0, loss = 0;
  int skipped = 0;
  for (int t = 0; t < 60; ++t) {
    const torch::Tensor error = (model->forward(x) - y).square().mean();
    loss = error.item<double>();
    if (t == 0) first_loss = loss;
    scaler.scale(error).backward();
    skipped += !scaler.step(optimizer).stepped;
    scaler.update();
    optimizer.zero_grad();
  }
  EXPECT_GE(skipped, 10);
  EXPECT_LT(scaler.get_scale(), 0x1p20);
  EXPECT_LT(loss, 0.8 * first_loss);
}

}  // namespace
}  // namespace hone::amp
