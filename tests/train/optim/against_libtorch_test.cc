// SPDX-License-Identifier: Apache-2.0
// hone's optimisers against LibTorch's and against their own other implementations.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

using torch::optim::OptimizerParamGroup;
using Tensors = std::vector<torch::Tensor>;

Tensors make_params() {
  torch::manual_seed(7);
  Tensors params;
  for (const int n : {1, 7, 1000}) params.push_back(torch::rand({n}) - 0.5);
  params.push_back(torch::rand({129, 33}) - 0.5);
  params.push_back(torch::rand({3, 5, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast));
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void set_gradients(Tensors& params, int step) {
  torch::manual_seed(1000 + step);
  for (torch::Tensor& param : params) param.mutable_grad() = torch::randn(param.sizes());
}

template <class Options>
std::vector<OptimizerParamGroup> two_groups(const Tensors& params, const Options& a,
                                            const Options& b) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Tensors(params.begin(), params.begin() + 3), std::make_unique<Options>(a));
  groups.emplace_back(Tensors(params.begin() + 3, params.end()), std::make_unique<Options>(b));
  return groups;
}

// max |a - b| / max(1, |b|) over all parameters
double worst_difference(const Tensors& a, const Tensors& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const torch::Tensor scale = b[i].detach().abs().clamp_min(1);
    worst = std::max(worst, ((a[i] - b[i]).detach().abs() / scale).max().item<double>());
  }
  return worst;
}

constexpr double kBound = 2e-6;

void train_both(torch::optim::Optimizer& a, Tensors& params_a, torch::optim::Optimizer& b,
                Tensors& params_b, int steps) {
  for (int t = 0; t < steps; ++t) {
    set_gradients(params_a, t);
    set_gradients(params_b, t);
    a.step();
    b.step();
  }
}

TEST(AgainstLibTorch, adamw_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdamWOptions;
  for (const bool amsgrad : {false, true}) {
    Tensors ours = make_params(), theirs = make_params();
    const LibOptions a = LibOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const LibOptions b = LibOptions(3e-3).weight_decay(0.02).betas({0.8, 0.99}).amsgrad(amsgrad);
    AdamW hone(two_groups<AdamWOptions>(ours, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    torch::optim::AdamW torch(two_groups(theirs, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, groups_may_carry_libtorchs_own_options) {
  using LibOptions = torch::optim::AdamWOptions;
  Tensors ours = make_params(), theirs = make_params();
  const LibOptions a = LibOptions(1e-3).weight_decay(0.1), b = LibOptions(3e-3);
  AdamW hone(two_groups(ours, a, b), LibOptions(1e-3));
  torch::optim::AdamW torch(two_groups(theirs, a, b), LibOptions(1e-3));
  train_both(hone, ours, torch, theirs, 20);
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

TEST(AgainstLibTorch, adam_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdamOptions;
  for (const bool amsgrad : {false, true}) {
    Tensors ours = make_params(), theirs = make_params();
    const LibOptions a = LibOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const LibOptions b = LibOptions(3e-3).betas({0.8, 0.99}).amsgrad(amsgrad);
    Adam hone(two_groups(ours, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    torch::optim::Adam torch(two_groups(theirs, a, b), LibOptions(1e-3).amsgrad(amsgrad));
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, adagrad_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::AdagradOptions;
  Tensors ours = make_params(), theirs = make_params();
  const LibOptions a = LibOptions(1e-2).weight_decay(0.1).lr_decay(0.05);
  const LibOptions b = LibOptions(3e-2).eps(1e-6);
  Adagrad hone(two_groups(ours, a, b), LibOptions(1e-2).initial_accumulator_value(0.5));
  torch::optim::Adagrad torch(two_groups(theirs, a, b),
                              LibOptions(1e-2).initial_accumulator_value(0.5));
  train_both(hone, ours, torch, theirs, 200);
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

TEST(AgainstLibTorch, sgd_with_two_groups_for_200_steps) {
  using LibOptions = torch::optim::SGDOptions;
  const LibOptions plain(0.01);
  const std::vector<std::pair<LibOptions, LibOptions>> settings{
      {plain, LibOptions(0.003).weight_decay(0.1)},
      {LibOptions(0.01).momentum(0.9).dampening(0.1), LibOptions(0.003).momentum(0.5)},
      {LibOptions(0.01).momentum(0.9).nesterov(true), LibOptions(0.003).weight_decay(0.1)},
  };
  for (const auto& [a, b] : settings) {
    Tensors ours = make_params(), theirs = make_params();
    SGD hone(two_groups(ours, a, b), plain);
    torch::optim::SGD torch(two_groups(theirs, a, b), plain);
    train_both(hone, ours, torch, theirs, 200);
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(AgainstLibTorch, adamw_equals_the_fused_operator) {
  Tensors ours = make_params(), theirs = make_params(), means, squares, steps;
  for (const torch::Tensor& param : theirs) {
    means.push_back(torch::zeros_like(param));
    squares.push_back(torch::zeros_like(param));
    steps.push_back(torch::zeros({}));
  }
  AdamW hone(ours, AdamWOptions(1e-3).weight_decay(0.1));
  const torch::NoGradGuard no_grad;
  for (int t = 0; t < 200; ++t) {
    set_gradients(ours, t);
    hone.step();
    set_gradients(theirs, t);
    Tensors grads;
    // The operator wants gradients in the parameter's layout.
    for (const torch::Tensor& param : theirs) {
      grads.push_back(torch::empty_like(param).copy_(param.grad()));
    }
    for (torch::Tensor& step : steps) step.add_(1);
    at::_fused_adamw_(theirs, grads, means, squares, {}, steps, 1e-3, 0.9, 0.999, 0.1, 1e-8, false,
                      false);
  }
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

TEST(AgainstLibTorch, sgd_equals_the_fused_operator) {
  Tensors ours = make_params(), theirs = make_params(), buffers;
  for (const torch::Tensor& param : theirs) buffers.push_back(torch::zeros_like(param));
  SGD hone(ours, SGDOptions(0.01).momentum(0.9).weight_decay(0.1));
  const torch::NoGradGuard no_grad;
  for (int t = 0; t < 200; ++t) {
    set_gradients(ours, t);
    hone.step();
    set_gradients(theirs, t);
    Tensors grads;
    for (const torch::Tensor& param : theirs) {
      grads.push_back(torch::empty_like(param).copy_(param.grad()));
    }
    at::_fused_sgd_(theirs, grads, buffers, 0.1, 0.9, 0.01, 0.0, false, false, t == 0);
  }
  EXPECT_LE(worst_difference(ours, theirs), kBound);
}

// The three implementations of one rule.
template <class Optimizer, class Options>
void check_implementations(const char* rule, const Options& options, int steps = 60) {
  Tensors fused = make_params(), foreach = make_params(), loop = make_params();
  Optimizer a(fused, Options(options).implementation(Implementation::Fused));
  Optimizer b(foreach, Options(options).implementation(Implementation::Foreach));
  Optimizer c(loop, Options(options).implementation(Implementation::ForLoop));
  const StepControl control{.inv_scale = 0.5, .clip_norm = 20};
  for (int t = 0; t < steps; ++t) {
    for (Tensors* params : {&fused, &foreach, &loop}) set_gradients(*params, t);
    const StepReport report = a.step_with(control);
    EXPECT_LT(report.clip_coef, 1);
    EXPECT_NEAR(b.step_with(control).grad_norm, report.grad_norm, 1e-6 * report.grad_norm);
    c.step_with(control);
  }
  EXPECT_LE(worst_difference(foreach, fused), kBound) << rule;
  EXPECT_LE(worst_difference(loop, fused), kBound) << rule;
  EXPECT_EQ(a.plan().front().kernel, "fused");
  EXPECT_EQ(a.plan().back().kernel, "fused_strided");  // the gradient is not channels-last
  EXPECT_EQ(b.plan().front().kernel, "foreach");
  EXPECT_EQ(c.plan().front().kernel, "for_loop");
}

TEST(Implementations, agree_for_every_rule) {
  check_implementations<SGD>("sgd", SGDOptions(0.01));
  check_implementations<SGD>("nesterov",
                             SGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(0.1));
  check_implementations<SGD>("dampening",
                             SGDOptions(0.01).momentum(0.9).dampening(0.2).maximize(true));
  check_implementations<AdamW>("adamw", AdamWOptions(1e-3).weight_decay(0.1));
  check_implementations<AdamW>("amsgrad", AdamWOptions(1e-3).amsgrad(true).maximize(true));
  check_implementations<Adam>("adam", AdamOptions(1e-3).weight_decay(0.1));
  check_implementations<Adagrad>("adagrad", AdagradOptions(1e-2).lr_decay(0.1).weight_decay(0.1));
  check_implementations<Adagrad>("adagrad up", AdagradOptions(1e-2).maximize(true));
  check_implementations<TAM>("tam", TAMOptions(0.01).weight_decay(0.1));
  check_implementations<TAM>("fixed damping", TAMOptions(0.01).fixed_damping(0.7));
  check_implementations<AdaTAM>("adatam", AdaTAMOptions(3e-5).weight_decay(0.1), 20);
  check_implementations<AdaTAM>("adatam average",
                                AdaTAMOptions(3e-5).momentum_form(MomentumForm::Ema), 20);
  check_implementations<TAM>("tam decoupled",
                             TAMOptions(0.01)
                                 .weight_decay(0.1)
                                 .decoupled_weight_decay(true)
                                 .correlation_method(CorrelationMethod::CosineSimilarity)
                                 .maximize(true));
  // ATen rounds (1 - ηλ) p by itself, in the same direction while p hardly moves: few steps.
  check_implementations<AdaTAMW>("adatamw", AdaTAMWOptions(3e-5), 20);
}

TEST(Implementations, gradients_are_left_zeroed_or_unscaled_alike) {
  for (const Implementation way :
       {Implementation::Fused, Implementation::Foreach, Implementation::ForLoop}) {
    Tensors params = make_params();
    AdamW optimizer(params, AdamWOptions(1e-3).implementation(way));
    set_gradients(params, 0);
    const torch::Tensor before = params[3].grad().clone();
    optimizer.step_with({.inv_scale = 0.25, .grad = GradWriteBack::Unscaled});
    EXPECT_TRUE(params[3].grad().equal(before * 0.25));
    optimizer.step_with({.grad = GradWriteBack::Zero});
    for (const torch::Tensor& param : params) EXPECT_EQ(param.grad().abs().sum().item<float>(), 0);
  }
}

}  // namespace
}  // namespace hone::optim
