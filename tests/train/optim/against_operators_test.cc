// SPDX-License-Identifier: Apache-2.0
// hone's optimizers against LibTorch's fused operators, two groups with settings of their own.
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <functional>

#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/sgd.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using test::kBound;
using test::make_params;
using test::set_gradients;
using test::Tensors;
using test::worst_difference;

// What an operator works on: the tensors of one group.
struct OperatorGroup {
  explicit OperatorGroup(const Tensors& all) : params(all) {
    for (const torch::Tensor& param : params) {
      first.push_back(torch::zeros_like(param));
      second.push_back(torch::zeros_like(param));
      largest.push_back(torch::zeros_like(param));
      steps.push_back(torch::zeros({}));
    }
  }
  // Gradients in the parameter's layout, as the operators want them, and the number of the step.
  void begin_step() {
    grads.clear();
    for (const torch::Tensor& param : params) {
      grads.push_back(torch::empty_like(param).copy_(param.grad()));
    }
    for (torch::Tensor& step : steps) step.add_(1);
  }
  Tensors params, grads, first, second, largest, steps;
};

using RunGroup = std::function<void(OperatorGroup& group, bool is_second, bool is_first_step)>;

// 200 steps of hone's optimizer over ours and of `run` over the groups of theirs.
template <class Optimizer, class Options>
void expect_same(const char* what, const Options& a, const Options& b, const RunGroup& run) {
  Tensors ours = make_params(), theirs = make_params();
  Optimizer hone(test::two_groups(ours, a, b), test::default_options<Options>());
  OperatorGroup first(Tensors(theirs.begin(), theirs.begin() + 3)),
      second(Tensors(theirs.begin() + 3, theirs.end()));
  const torch::NoGradGuard no_grad;
  for (int t = 0; t < 200; ++t) {
    set_gradients(ours, t);
    hone.step();
    set_gradients(theirs, t);
    for (OperatorGroup* group : {&first, &second}) {
      group->begin_step();
      run(*group, group == &second, t == 0);
    }
  }
  EXPECT_LE(worst_difference(ours, theirs), kBound) << what;
}

TEST(AgainstOperators, adamw_equals_the_fused_operator) {
  for (const bool amsgrad : {false, true}) {
    const auto a = AdamWOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const auto b = AdamWOptions(3e-3).weight_decay(0.02).betas({0.8, 0.99}).amsgrad(amsgrad);
    expect_same<AdamW>("adamw", a, b, [=](OperatorGroup& g, bool is_second, bool) {
      at::_fused_adamw_(g.params, g.grads, g.first, g.second, amsgrad ? g.largest : Tensors{},
                        g.steps, is_second ? 3e-3 : 1e-3, is_second ? 0.8 : 0.9,
                        is_second ? 0.99 : 0.999, is_second ? 0.02 : 0.1, 1e-8, amsgrad, false);
    });
  }
}

TEST(AgainstOperators, adam_equals_the_fused_operator) {
  for (const bool amsgrad : {false, true}) {
    const auto a = AdamOptions(1e-3).weight_decay(0.1).amsgrad(amsgrad);
    const auto b = AdamOptions(3e-3).betas({0.8, 0.99}).amsgrad(amsgrad);
    expect_same<Adam>("adam", a, b, [=](OperatorGroup& g, bool is_second, bool) {
      at::_fused_adam_(g.params, g.grads, g.first, g.second, amsgrad ? g.largest : Tensors{},
                       g.steps, is_second ? 3e-3 : 1e-3, is_second ? 0.8 : 0.9,
                       is_second ? 0.99 : 0.999, is_second ? 0 : 0.1, 1e-8, amsgrad, false);
    });
  }
}

TEST(AgainstOperators, sgd_equals_the_fused_operator) {
  for (const bool nesterov : {false, true}) {
    const auto a = SGDOptions(0.01).momentum(0.9).weight_decay(0.1).nesterov(nesterov);
    const auto b = SGDOptions(0.003).momentum(0.5).nesterov(nesterov);
    expect_same<SGD>("sgd", a, b, [=](OperatorGroup& g, bool is_second, bool is_first_step) {
      at::_fused_sgd_(g.params, g.grads, g.first, is_second ? 0 : 0.1, is_second ? 0.5 : 0.9,
                      is_second ? 0.003 : 0.01, 0.0, nesterov, false, is_first_step);
    });
  }
}

TEST(AgainstOperators, adagrad_equals_the_fused_operator) {
  const auto a = AdagradOptions(1e-2).weight_decay(0.1).lr_decay(0.05);
  const auto b = AdagradOptions(3e-2).eps(1e-6);
  expect_same<Adagrad>("adagrad", a, b, [](OperatorGroup& g, bool is_second, bool) {
    at::_fused_adagrad_(g.params, g.grads, g.second, g.steps, is_second ? 3e-2 : 1e-2,
                        is_second ? 0 : 0.05, is_second ? 0 : 0.1, is_second ? 1e-6 : 1e-10, false);
  });
}

}  // namespace
}  // namespace hone::optim
