// SPDX-License-Identifier: Apache-2.0
// The three implementations of each rule against each other.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using test::kBound;
using test::make_params;
using test::set_gradients;
using test::Tensors;
using test::worst_difference;

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
  check_implementations<RMSprop>("rmsprop", RMSpropOptions(1e-2).weight_decay(0.1));
  check_implementations<RMSprop>("rmsprop momentum",
                                 RMSpropOptions(1e-2).momentum(0.9).maximize(true));
  check_implementations<RMSprop>("rmsprop centered",
                                 RMSpropOptions(1e-2).centered(true).momentum(0.5).eps(1e-3));
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

// The chains mix momentum and gradient in another order, so that an argument within rounding of 0
// may take the other sign: such elements are left out.
TEST(Implementations, lion_agrees_where_signs_are_certain) {
  const auto options = LionOptions(1e-3).weight_decay(0.1).betas({0.75, 0.5});
  Tensors fused = make_params(), foreach = make_params(), loop = make_params();
  Lion a(fused, LionOptions(options).implementation(Implementation::Fused));
  Lion b(foreach, LionOptions(options).implementation(Implementation::Foreach));
  Lion c(loop, LionOptions(options).implementation(Implementation::ForLoop));
  Tensors momentum, certain;
  for (const torch::Tensor& param : fused) {
    momentum.push_back(torch::zeros(param.sizes(), at::kDouble));
    certain.push_back(torch::ones(param.sizes(), at::kBool));
  }
  for (int t = 0; t < 200; ++t) {
    for (Tensors* params : {&fused, &foreach, &loop}) set_gradients(*params, t);
    for (std::size_t i = 0; i < fused.size(); ++i) {
      const torch::Tensor grad = fused[i].grad().to(at::kDouble);
      certain[i].logical_and_((0.75 * momentum[i] + 0.25 * grad).abs() > 1e-6);
      momentum[i] = 0.5 * momentum[i] + 0.5 * grad;
    }
    for (Lion* optimizer : {&a, &b, &c}) optimizer->step();
  }
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LE((~certain[i]).sum().item<std::int64_t>(), 1 + fused[i].numel() / 100);
    for (Tensors* params : {&fused, &foreach, &loop}) {
      (*params)[i] = (*params)[i].detach().where(certain[i], torch::zeros({}));
    }
  }
  EXPECT_LE(worst_difference(foreach, fused), kBound);
  EXPECT_LE(worst_difference(loop, fused), kBound);
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
