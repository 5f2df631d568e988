// SPDX-License-Identifier: Apache-2.0
// Unscale, clip, step, skip: with hone's optimizers and LibTorch's.
#include "hone/train/amp/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <limits>

#include "hone/core/error.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"

namespace hone::amp {
namespace {

using hone::test::copies;
using hone::test::equal;
using hone::test::error_of;
using hone::test::Tensors;
using hone::test::worst_difference;
using testing::HasSubstr;

constexpr float kInfiniteGradient = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kUnit = 0x1p-24;

Tensors make_params(Index count = 3) {
  torch::manual_seed(1);
  Tensors params;
  for (Index i = 0; i < count; ++i) params.push_back(torch::randn({i == 0 ? 20'000 : 5 + i}));
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void set_gradients(Tensors& params, int step, double scale) {
  torch::manual_seed(100 + step);
  for (torch::Tensor& param : params) param.mutable_grad() = torch::randn(param.sizes()) * scale;
}

Tensors gradients_of(const Tensors& params) {
  Tensors out;
  for (const torch::Tensor& param : params) out.push_back(param.grad());
  return out;
}

GradScaler started(GradScalerOptions options = {}) {
  GradScaler scaler(options);
  scaler.scale(torch::ones({}));
  return scaler;
}

// One iteration on gradients that carry the scale.
StepReport iterate(GradScaler& scaler, torch::optim::Optimizer& optimizer, Tensors& params,
                   int step, const StepControl& control = {}) {
  set_gradients(params, step, scaler.get_scale());
  const StepReport report = scaler.step(optimizer, control);
  scaler.update();
  return report;
}

Tensors state_of(optim::MultiTensorOptimizer& optimizer) {
  Tensors state;
  for (const optim::NamedState& one : optimizer.export_state()) {
    state.push_back(one.value.clone());
  }
  return state;
}

TEST(GradScaler, scales_the_loss_and_its_gradients) {
  GradScaler scaler({.init_scale = 1024});
  const torch::Tensor x = torch::tensor(3.0f).requires_grad_();
  const torch::Tensor scaled = scaler.scale(x * x);
  EXPECT_EQ(scaled.item<float>(), 9 * 1024);
  scaled.backward();
  EXPECT_EQ(x.grad().item<float>(), 6 * 1024);
}

TEST(GradScaler, scales_lists_of_outputs_each_with_its_type) {
  GradScaler scaler({.init_scale = 1024});
  const torch::Tensor x = torch::tensor(3.0f).requires_grad_();
  const Tensors outputs{x * x, torch::full({2}, 0.5, at::kHalf),
                        torch::full({3}, 2.0, at::kDouble)};
  const Tensors scaled = scaler.scale(outputs);
  ASSERT_EQ(scaled.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scaled[i].scalar_type(), outputs[i].scalar_type());
    EXPECT_TRUE(scaled[i].equal(outputs[i] * 1024));
  }
  scaled[0].backward();
  EXPECT_EQ(x.grad().item<float>(), 6 * 1024);
  EXPECT_TRUE(scaler.scale(Tensors{}).empty());
  GradScaler off({.enabled = false});
  EXPECT_TRUE(off.scale(outputs)[1].is_same(outputs[1]));
}

// What fp16 holds of the scaled gradients is stepped with, unscaled in fp32: 2^-20 is below what
// unscaling in fp16 would keep.
TEST(GradScaler, fp16_gradients_are_unscaled_checked_and_skipped_by_hones_optimizers) {
  Tensors wide = make_params(), half = make_params();
  optim::AdamW adamw_wide(wide, optim::AdamWOptions(1e-2)), adamw(half, optim::AdamWOptions(1e-2));
  optim::TAM tam_wide(wide, optim::TAMOptions(1e-2)), tam(half, optim::TAMOptions(1e-2));
  for (const auto& [a, b] :
       {std::pair<torch::optim::Optimizer*, torch::optim::Optimizer*>(&adamw_wide, &adamw),
        {&tam_wide, &tam}}) {
    GradScaler scaler_a({.init_scale = 65536}), scaler_b({.init_scale = 65536});
    for (int t = 0; t < 6; ++t) {
      for (Tensors* params : {&wide, &half}) {
        for (torch::Tensor& param : *params) param.mutable_grad() = torch::Tensor();
        torch::manual_seed(t);
        torch::Tensor loss = torch::zeros({});
        for (const torch::Tensor& param : *params) {
          loss = loss + (param * torch::randn(param.sizes())).sum() * 0x1p-20;
        }
        (params == &wide ? scaler_a : scaler_b).scale(loss).backward();
        for (torch::Tensor& param : *params) {
          const torch::Tensor rounded = param.grad().to(at::kHalf);
          param.mutable_grad() = params == &wide ? rounded.to(at::kFloat) : rounded;
        }
      }
      const bool overflows = t == 2;
      if (overflows)
        wide[1].mutable_grad()[0] = kInfiniteGradient,
        half[1].mutable_grad()[0] = kInfiniteGradient;
      const Tensors before = copies(half);
      const StepReport report_a = scaler_a.step(*a, {.clip_norm = 1e-5});
      const StepReport report_b = scaler_b.step(*b, {.clip_norm = 1e-5});
      EXPECT_EQ(report_b.stepped, !overflows);
      EXPECT_EQ(report_b.first_nonfinite_tensor, overflows ? 1 : -1);
      EXPECT_EQ(report_b.grad_norm, report_a.grad_norm);
      EXPECT_EQ(equal(half, before), overflows);
      scaler_a.update();
      scaler_b.update();
      EXPECT_EQ(scaler_b.get_scale(), t < 2 ? 65536 : 32768);
    }
    EXPECT_TRUE(equal(half, wide));
    EXPECT_EQ(scaler_b.gradient_sweeps(), 0);
  }
}

TEST(GradScaler, a_static_scale_stays_for_5000_steps_and_overflow_steps_are_skipped) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(1e-6));
  GradScaler scaler = started({.init_scale = 128, .growth_interval = 10, .dynamic = false});
  set_gradients(params, 0, 128);
  for (int t = 0; t < 5000; ++t) {
    const bool overflow = t % 50 == 7;
    params[1].mutable_grad()[0] = overflow ? kInfiniteGradient : 1.0f;
    EXPECT_EQ(scaler.step(optimizer).stepped, !overflow);
    const ScaleUpdate update = scaler.update();
    ASSERT_EQ(update.next_scale, 128);
    ASSERT_EQ(update.found_inf, overflow);
  }
  EXPECT_EQ(optimizer.stats().skipped_steps, 100);
}

TEST(GradScaler, a_fused_step_needs_no_sweep_of_its_own_and_others_one) {
  Tensors params = make_params();
  optim::AdamW fused(params, optim::AdamWOptions(1e-3));
  GradScaler scaler = started();
  set_gradients(params, 0, scaler.get_scale());
  const Tensors before = copies(gradients_of(params));
  EXPECT_TRUE(scaler.step(fused, {.clip_norm = 1}).stepped);
  EXPECT_EQ(scaler.gradient_sweeps(), 0);
  EXPECT_TRUE(equal(gradients_of(params), before)) << "nothing was written";
  scaler.update();

  torch::optim::AdamW stock(params, torch::optim::AdamWOptions(1e-3));
  iterate(scaler, stock, params, 1);
  EXPECT_EQ(scaler.gradient_sweeps(), 1);
  set_gradients(params, 2, scaler.get_scale());
  scaler.unscale_(fused);
  scaler.step(fused);
  EXPECT_EQ(scaler.gradient_sweeps(), 2) << "the step does not look again";
}

TEST(GradScaler, calls_out_of_order_are_errors_that_name_the_call) {
  Tensors params = make_params();
  optim::SGD own(params, optim::SGDOptions(0.1));
  torch::optim::SGD stock(params, torch::optim::SGDOptions(0.1));
  for (torch::optim::Optimizer* optimizer : {static_cast<torch::optim::Optimizer*>(&own),
                                             static_cast<torch::optim::Optimizer*>(&stock)}) {
    GradScaler scaler;
    set_gradients(params, 0, 1);
    const auto unscale = [&] { scaler.unscale_(*optimizer); };
    const auto step = [&] { scaler.step(*optimizer); };
    const auto update = [&] { scaler.update(); };
    EXPECT_THAT(error_of(step), HasSubstr("[GradScaler.step] expected scale(loss) called before"));
    EXPECT_THAT(error_of(unscale), HasSubstr("[GradScaler.unscale_] expected scale(loss)"));
    EXPECT_THAT(error_of(update), HasSubstr("[GradScaler.update] expected scale(loss)"));
    scaler.scale(torch::ones({}));
    EXPECT_THAT(error_of(update), HasSubstr("[GradScaler.update] expected step() or unscale_()"));
    unscale();
    EXPECT_THAT(error_of(unscale), HasSubstr("got a second unscale_()"));
    step();
    EXPECT_THAT(error_of(step), HasSubstr("[GradScaler.step] expected one call"));
    EXPECT_THAT(error_of(unscale),
                HasSubstr("[GradScaler.unscale_] expected the call before step"));
    update();
    EXPECT_THAT(error_of(update), HasSubstr("got neither"));
    EXPECT_EQ(error_of(unscale), "no error");
  }
}

TEST(GradScaler, inf_and_nan_anywhere_are_found_and_nothing_changes) {
  Tensors params = make_params(50);
  optim::AdamW adamw(params, optim::AdamWOptions(1e-3));
  optim::TAM tam(params, optim::TAMOptions(1e-3));
  torch::optim::AdamW stock(params, torch::optim::AdamWOptions(1e-3));
  GradScaler scaler = started({.dynamic = false});
  for (torch::optim::Optimizer* optimizer :
       {static_cast<torch::optim::Optimizer*>(&adamw), static_cast<torch::optim::Optimizer*>(&tam),
        static_cast<torch::optim::Optimizer*>(&stock)}) {
    auto* own = dynamic_cast<optim::MultiTensorOptimizer*>(optimizer);
    ASSERT_TRUE(iterate(scaler, *optimizer, params, 0).stepped);
    const Tensors before = copies(params);
    const Tensors state = own != nullptr ? state_of(*own) : Tensors{};
    for (std::size_t p = 0; p < params.size(); ++p) {
      const Index last = params[p].numel() - 1;
      for (const Index at : {Index{0}, last / 2, last}) {
        for (const float bad : {kInfiniteGradient, -kInfiniteGradient, kNan}) {
          set_gradients(params, 1, scaler.get_scale());
          params[p].mutable_grad()[at] = bad;
          const StepReport report = scaler.step(*optimizer);
          ASSERT_FALSE(report.stepped) << p << " at " << at;
          ASSERT_EQ(report.first_nonfinite_tensor, static_cast<Index>(p));
          ASSERT_TRUE(scaler.update().found_inf);
        }
      }
    }
    EXPECT_TRUE(equal(params, before));
    if (own == nullptr) continue;
    EXPECT_TRUE(equal(state_of(*own), state)) << "moments, s and t";
  }
}

TEST(GradScaler, ten_million_elements_of_3e38_are_finite_with_the_right_norm) {
  const Index n = 10'000'000;
  Tensors params{torch::zeros({n}).requires_grad_()};
  optim::SGD own(params, optim::SGDOptions(0));
  torch::optim::SGD stock(params, torch::optim::SGDOptions(0));
  const double norm = static_cast<double>(3e38f) * std::sqrt(static_cast<double>(n)) / 2;
  for (torch::optim::Optimizer* optimizer : {static_cast<torch::optim::Optimizer*>(&own),
                                             static_cast<torch::optim::Optimizer*>(&stock)}) {
    params[0].mutable_grad() = torch::full({n}, 3e38f);
    GradScaler scaler = started({.init_scale = 2});
    const StepReport report =
        scaler.step(*optimizer, {.clip_norm = std::numeric_limits<double>::infinity()});
    EXPECT_TRUE(report.stepped);
    EXPECT_NEAR(report.grad_norm / norm, 1, 1e-6);
    EXPECT_FALSE(scaler.update().found_inf);
  }
}

// The same step from parts: unscale, LibTorch's clip, step.
template <class Optimizer, class Options>
void check_fused_equals_parts(const Options& options) {
  Tensors fused = make_params(), parts = make_params();
  Optimizer a(fused, options), b(parts, options);
  GradScaler scaler_a = started({.init_scale = 3000}), scaler_b = started({.init_scale = 3000});
  for (int t = 0; t < 10; ++t) {
    set_gradients(fused, t, 3000);
    set_gradients(parts, t, 3000);
    ASSERT_TRUE(scaler_a.step(a, {.clip_norm = 20}).stepped);
    scaler_b.unscale_(b);
    torch::nn::utils::clip_grad_norm_(parts, 20);
    scaler_b.step(b);
    scaler_a.update();
    scaler_b.update();
  }
  EXPECT_LE(worst_difference(fused, parts), 10 * 4 * kUnit);
}

TEST(GradScaler, fused_unscale_clip_and_step_equal_the_three_done_apart) {
  check_fused_equals_parts<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  check_fused_equals_parts<optim::AdamW>(optim::AdamWOptions(1e-2));
  check_fused_equals_parts<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  check_fused_equals_parts<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2));
}

// The same step from parts: unscale, LibTorch's clip, step.
TEST(GradScaler, value_clipping_and_other_norms_follow_libtorch_for_every_optimizer) {
  const double largest = std::numeric_limits<double>::infinity();
  for (const StepControl& control :
       {StepControl{.clip_value = 0.5}, StepControl{.clip_norm = 100, .norm_type = 1},
        StepControl{.clip_norm = 1, .norm_type = largest},
        StepControl{.clip_norm = 10, .norm_type = 3}}) {
    Tensors own = make_params(), stock = make_params(), parts = make_params();
    optim::SGD a(own, optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD b(stock, torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD c(parts, torch::optim::SGDOptions(0.1).momentum(0.9));
    GradScaler scaler_a = started({.init_scale = 3000}), scaler_b = started({.init_scale = 3000}),
               scaler_c = started({.init_scale = 3000});
    for (int t = 0; t < 5; ++t) {
      for (Tensors* params : {&own, &stock, &parts}) set_gradients(*params, t, 3000);
      const StepReport report_a = scaler_a.step(a, control);
      const StepReport report_b = scaler_b.step(b, control);
      scaler_c.unscale_(c);
      if (control.clip_value > 0) {
        torch::nn::utils::clip_grad_value_(parts, control.clip_value);
      } else {
        const double norm =
            torch::nn::utils::clip_grad_norm_(parts, control.clip_norm, control.norm_type);
        EXPECT_NEAR(report_a.grad_norm / norm, 1, 1e-5);
        EXPECT_NEAR(report_b.grad_norm / norm, 1, 1e-5);
        EXPECT_LT(report_a.clip_coef, 1);
      }
      scaler_c.step(c);
      for (GradScaler* scaler : {&scaler_a, &scaler_b, &scaler_c}) scaler->update();
    }
    EXPECT_LE(worst_difference(own, parts), 2e-6);  // parameters are below 5
    EXPECT_LE(worst_difference(stock, parts), 2e-6);
    EXPECT_GT(worst_difference(parts, make_params()), 1e-3);
    set_gradients(stock, 0, 1);
    EXPECT_THAT(error_of([&] { scaler_b.step(b, {.clip_norm = 1, .clip_value = 1}); }),
                HasSubstr("[GradScaler.step] expected clip_norm or clip_value, got both"));
    EXPECT_THAT(error_of([&] { scaler_b.step(b, {.clip_norm = 1, .norm_type = -1}); }),
                HasSubstr("norm_type"));
  }
}

TEST(GradScaler, an_explicit_unscale_divides_once) {
  Tensors params{torch::zeros({5}).requires_grad_()};
  optim::SGD own(params, optim::SGDOptions(1));
  torch::optim::SGD stock(params, torch::optim::SGDOptions(1));
  for (torch::optim::Optimizer* optimizer : {static_cast<torch::optim::Optimizer*>(&own),
                                             static_cast<torch::optim::Optimizer*>(&stock)}) {
    GradScaler scaler = started({.init_scale = 1024});
    {
      const torch::NoGradGuard no_grad;
      params[0].zero_();
    }
    params[0].mutable_grad() = torch::full({5}, 2048.0f);
    const auto version = params[0].grad()._version();
    scaler.unscale_(*optimizer);
    EXPECT_EQ(params[0].grad()[0].item<float>(), 2);
    EXPECT_GT(params[0].grad()._version(), version);
    scaler.step(*optimizer);
    EXPECT_EQ(params[0][4].item<float>(), -2);
  }
}

TEST(GradScaler, a_step_that_throws_may_be_tried_again_without_dividing_again) {
  Tensors params{torch::zeros({5}).requires_grad_()};
  torch::optim::LBFGS wants_closure(params);
  GradScaler scaler = started({.init_scale = 4});
  params[0].mutable_grad() = torch::full({5}, 8.0f);
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_ANY_THROW(scaler.step(wants_closure));
    EXPECT_EQ(params[0].grad()[0].item<float>(), 2);
  }
}

TEST(GradScaler, one_optimizer_may_skip_while_another_steps) {
  Tensors first = make_params(), second = make_params();
  optim::SGD a(first, optim::SGDOptions(0.1));
  torch::optim::SGD b(second, torch::optim::SGDOptions(0.1));
  GradScaler scaler = started({.init_scale = 8});
  set_gradients(first, 0, 8);
  set_gradients(second, 0, 8);
  first[2].mutable_grad()[0] = kNan;
  EXPECT_FALSE(scaler.step(a).stepped);
  EXPECT_TRUE(scaler.step(b).stepped);
  const ScaleUpdate update = scaler.update();
  EXPECT_TRUE(update.found_inf);
  EXPECT_FALSE(update.stepped);
  EXPECT_EQ(update.scale, 8);
  EXPECT_EQ(scaler.get_scale(), 4);
}

TEST(GradScaler, a_scale_of_one_still_checks) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(0.1));
  GradScaler scaler = started({.init_scale = 1});
  set_gradients(params, 0, 1);
  params[0].mutable_grad()[19'999] = kInfiniteGradient;
  EXPECT_FALSE(scaler.step(optimizer).stepped);
}

TEST(GradScaler, what_the_caller_repaired_after_unscale_is_skipped_all_the_same) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(0.1));
  GradScaler scaler = started();
  set_gradients(params, 0, 1);
  params[1].mutable_grad()[0] = kInfiniteGradient;
  scaler.unscale_(optimizer);
  params[1].mutable_grad().zero_();
  const StepReport report = scaler.step(optimizer);
  EXPECT_FALSE(report.stepped);
  EXPECT_EQ(report.first_nonfinite_tensor, 1);
  EXPECT_TRUE(scaler.update().found_inf);
}

TEST(GradScaler, a_checked_step_that_stops_for_its_new_values_is_no_overflow) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(1e39));
  GradScaler scaler = started();
  EXPECT_FALSE(iterate(scaler, optimizer, params, 0, {.checked = true}).stepped);
  EXPECT_EQ(scaler.get_scale(), 65536);
  // An option of the rule asks for the check.
  optim::TAM tam(params, optim::TAMOptions(1e39).use_inplace_ops(false));
  EXPECT_FALSE(iterate(scaler, tam, params, 0).stepped);
  EXPECT_EQ(scaler.get_scale(), 65536);
}

TEST(GradScaler, accumulated_weight_and_zeroing_are_part_of_the_step) {
  for (const bool own : {true, false}) {
    Tensors params{torch::zeros({5}).requires_grad_()};
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (own) optimizer = std::make_unique<optim::SGD>(params, optim::SGDOptions(1));
    if (!own) {
      optimizer = std::make_unique<torch::optim::SGD>(params, torch::optim::SGDOptions(1));
    }
    GradScaler scaler = started({.init_scale = 16});
    params[0].mutable_grad() = torch::full({5}, 64.0f);
    scaler.step(*optimizer, {.inv_scale = 0.25, .grad = GradWriteBack::Zero});
    EXPECT_EQ(params[0][2].item<float>(), -1);
    EXPECT_EQ(params[0].grad().abs().max().item<float>(), 0);
  }
}

TEST(GradScaler, hysteresis_backs_off_only_after_so_many_overflows) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(0.1));
  GradScaler scaler = started({.init_scale = 64, .growth_interval = 2, .hysteresis = 3});
  const auto run = [&](bool overflow) {
    set_gradients(params, 0, 1);
    if (overflow) params[0].mutable_grad()[0] = kNan;
    scaler.step(optimizer);
    return scaler.update().next_scale;
  };
  EXPECT_EQ(run(true), 64);
  EXPECT_EQ(run(true), 64);
  GradScaler resumed = started({.hysteresis = 3});
  resumed.load_state_dict(scaler.state_dict());
  EXPECT_EQ(run(true), 32);
  EXPECT_EQ(run(true), 16);
  std::swap(scaler, resumed);
  EXPECT_EQ(run(true), 32) << "resumed after two";
  run(false);
  EXPECT_EQ(run(false), 64) << "growth gives the patience back";
  EXPECT_EQ(run(true), 64);
}

TEST(GradScaler, bounds_hold_the_scale) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(0.1));
  GradScaler scaler =
      started({.init_scale = 8, .growth_interval = 1, .min_scale = 3, .max_scale = 20});
  for (const double expected : {16.0, 20.0, 20.0}) {
    iterate(scaler, optimizer, params, 0);
    EXPECT_EQ(scaler.get_scale(), expected);
  }
  for (const double expected : {10.0, 5.0, 3.0, 3.0}) {
    set_gradients(params, 0, 1);
    params[0].mutable_grad()[0] = kNan;
    scaler.step(optimizer);
    EXPECT_EQ(scaler.update().next_scale, expected);
  }
}

TEST(GradScaler, a_scale_that_cannot_divide_is_an_error_and_not_a_nan) {
  Tensors params = make_params();
  optim::SGD optimizer(params, optim::SGDOptions(0.1));
  GradScaler scaler = started({.growth_interval = 1});
  scaler.update(1e-40);
  set_gradients(params, 0, 1);
  EXPECT_THAT(error_of([&] { scaler.step(optimizer); }), HasSubstr("a loss scale whose inverse"));
  EXPECT_THAT(error_of([&] { scaler.update(); }), HasSubstr("got neither"));
}

TEST(GradScaler, disabled_it_is_the_optimizers_own_step) {
  Tensors params = make_params(), plain = make_params();
  optim::SGD a(params, optim::SGDOptions(0.1)), b(plain, optim::SGDOptions(0.1));
  GradScaler scaler({.enabled = false});
  const torch::Tensor loss = torch::ones({});
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  set_gradients(params, 0, 1);
  set_gradients(plain, 0, 1);
  scaler.unscale_(a);
  scaler.step(a);
  scaler.update();
  b.step();
  EXPECT_TRUE(equal(params, plain));
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_EQ(scaler.state_dict().dump(), "{}");
}

TEST(GradScaler, other_types_and_layouts_of_stock_optimizers_are_unscaled_too) {
  const auto options = torch::TensorOptions(torch::kDouble);
  Tensors params{torch::zeros({3}, options), torch::zeros({3}, torch::kBFloat16),
                 torch::zeros({4, 3}), torch::zeros({3})};
  params[2] = params[2].t();
  for (torch::Tensor& param : params) param.requires_grad_();
  torch::optim::SGD optimizer(params, torch::optim::SGDOptions(1));
  const auto fill = [&] {
    for (torch::Tensor& param : params) param.mutable_grad() = torch::full_like(param, 8);
    params[3].mutable_grad() = torch::full({6}, 8.0f).slice(0, 0, 6, 2);
  };
  GradScaler scaler = started({.init_scale = 4, .dynamic = false});
  fill();
  const StepReport report = scaler.step(optimizer, {.clip_norm = 1e9});
  EXPECT_NEAR(report.grad_norm, 2 * std::sqrt(21.0), 1e-6);
  for (const torch::Tensor& param : params) EXPECT_EQ(param.max().item<double>(), -2);
  scaler.update();
  for (std::size_t i = 0; i < params.size(); ++i) {
    fill();
    params[i].mutable_grad()[-1].fill_(kNan);
    const StepReport skipped = scaler.step(optimizer);
    EXPECT_FALSE(skipped.stepped);
    EXPECT_EQ(skipped.first_nonfinite_tensor, static_cast<Index>(i));
    scaler.update();
  }
}

TEST(GradScaler, fp16_and_sparse_gradients_and_none_are_refused) {
  Tensors half{torch::zeros({3}, torch::kHalf).requires_grad_()};
  torch::optim::SGD stock(half, torch::optim::SGDOptions(1));
  GradScaler scaler = started();
  EXPECT_THAT(error_of([&] { scaler.step(stock); }), HasSubstr("a gradient for at least one"));
  half[0].mutable_grad() = torch::ones({3}, torch::kHalf);
  EXPECT_THAT(error_of([&] { scaler.step(stock); }),
              HasSubstr("[GradScaler.step] expected a gradient of parameter 0 wider than fp16"));
  EXPECT_THAT(error_of([&] { scaler.unscale_(stock); }), HasSubstr("GradScaler.unscale_"));
  EXPECT_THAT(error_of([&] { scaler.step(stock, {.ema_decay = 0.9}); }),
              HasSubstr("one of hone's optimizers for ema_decay, got another one"));
  EXPECT_THAT(error_of([&] { scaler.scale(torch::Tensor()); }),
              HasSubstr("[GradScaler.scale] expected a defined tensor"));
  Tensors params = make_params();
  torch::optim::SGD other(params, torch::optim::SGDOptions(1));
  params[1].mutable_grad() = torch::ones({6}).to_sparse();
  EXPECT_THAT(error_of([&] { scaler.step(other); }), HasSubstr("a dense gradient of parameter 1"));
  optim::SGD own(params, optim::SGDOptions(1));
  EXPECT_THAT(error_of([&] { scaler.step(own); }), HasSubstr("a dense gradient of parameter 1"));
  for (torch::Tensor& param : params) param.mutable_grad() = torch::Tensor();
  EXPECT_THAT(error_of([&] { scaler.step(own); }), HasSubstr("a gradient for at least one"));
  params[2].mutable_grad() = torch::ones({7}).to(torch::kHalf);
  EXPECT_THAT(
      error_of([&] { scaler.unscale_(own); }),
      HasSubstr("[GradScaler.unscale_] expected a gradient of parameter 2 wider than fp16"));
  EXPECT_EQ(own.stats().steps, 0);
}

TEST(GradScaler, bad_options_and_states_are_refused_and_change_nothing) {
  const auto make = [](GradScalerOptions options) {
    return error_of([&] { GradScaler scaler(options); });
  };
  EXPECT_THAT(make({.growth_factor = 1}), HasSubstr("a growth_factor above 1"));
  EXPECT_THAT(make({.backoff_factor = 1}), HasSubstr("a backoff_factor between 0 and 1"));
  EXPECT_THAT(make({.init_scale = 0}), HasSubstr("init_scale"));
  EXPECT_THAT(make({.init_scale = 1e39}), HasSubstr("init_scale"));
  EXPECT_THAT(make({.growth_interval = 0}), HasSubstr("growth_interval"));
  EXPECT_THAT(make({.hysteresis = 0}), HasSubstr("hysteresis"));
  EXPECT_THAT(make({.min_scale = 1e6}), HasSubstr("min_scale"));
  GradScaler scaler;
  const Json good = scaler.state_dict();
  const auto load = [&](const char* key, const Json& value) {
    Json state = good;
    state["scale"] = 7.0;
    value.is_null() ? static_cast<void>(state.erase(key)) : void(state[key] = value);
    return error_of([&] { scaler.load_state_dict(state); });
  };
  EXPECT_THAT(load("growth_factor", nullptr), HasSubstr("a number as growth_factor, got none"));
  EXPECT_THAT(load("scale", 0.0), HasSubstr("scale"));
  EXPECT_THAT(load("scale", "big"), HasSubstr("scale"));
  EXPECT_THAT(load("backoff_factor", 2.0), HasSubstr("backoff_factor"));
  EXPECT_THAT(load("_growth_tracker", -1), HasSubstr("_growth_tracker"));
  EXPECT_THAT(load("growth_interval", 1.5), HasSubstr("growth_interval"));
  EXPECT_THAT(error_of([&] { scaler.load_state_dict(Json::object()); }), HasSubstr("enabled"));
  EXPECT_EQ(scaler.state_dict(), good);
}

}  // namespace
}  // namespace hone::amp
