// SPDX-License-Identifier: Apache-2.0
// Every rule on every instruction set against the same rule with all state in double, 100 steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "hone/core/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using test::TensorSet;
using test::TensorSetOptions;

constexpr Index kTrainSteps = 100;
// 8 u sqrt(steps), u = 2^-24
const double kTolerance = 8 * std::ldexp(1.0, -24) * std::sqrt(kTrainSteps);

struct DoubleState {
  std::vector<double> param, grad, momentum, second_moment, extra;
  double correlation = 0;

  BasicChunkOperands<double> operands() {
    const auto at = [](std::vector<double>& list) { return list.empty() ? nullptr : list.data(); };
    return {at(param),         grad.data(), at(momentum),
            at(second_moment), at(extra),   static_cast<Index>(grad.size())};
  }
};

struct RuleCase {
  const char* name;
  TensorSetOptions slots;
  std::function<void(const MultiTensorPlan&, std::span<double>, Executor&)> step;
  std::function<void(DoubleState&, Index t)> reference;
};

RuleCase sgd_case(const char* name, const SGDGroup& group) {
  return {name,
          {.momentum = group.momentum > 0},
          [=](const MultiTensorPlan& plan, std::span<double>, Executor& executor) {
            sgd_step(plan, {&group, 1}, {}, executor);
          },
          [=](DoubleState& state, Index t) {
            update_sgd_reference<double>(state.operands(), sgd_scalars<double>(group, t, 1));
          }};
}

RuleCase adam_case(const char* name, const AdamGroup& group) {
  return {name,
          {.second_moment = true, .extra = group.amsgrad},
          [=](const MultiTensorPlan& plan, std::span<double>, Executor& executor) {
            adam_step(plan, {&group, 1}, {}, executor);
          },
          [=](DoubleState& state, Index t) {
            update_adam_reference<double>(state.operands(), adam_scalars<double>(group, t, 1));
          }};
}

RuleCase adagrad_case(const char* name, const AdagradGroup& group) {
  return {name,
          {.momentum = false, .second_moment = true},
          [=](const MultiTensorPlan& plan, std::span<double>, Executor& executor) {
            adagrad_step(plan, {&group, 1}, {}, executor);
          },
          [=](DoubleState& state, Index t) {
            update_adagrad_reference<double>(state.operands(),
                                             adagrad_scalars<double>(group, t, 1));
          }};
}

RuleCase tam_case(const char* name, const TAMGroup& group, bool adaptive) {
  return {name,
          {.second_moment = adaptive},
          [=](const MultiTensorPlan& plan, std::span<double> s, Executor& executor) {
            tam_step(plan, {&group, 1}, TAMScope::Tensor, s, {}, executor);
          },
          [=](DoubleState& state, Index t) {
            double sums[6];
            gather_reference<double>(Statistics::TorqueWithDecay, state.operands(), sums);
            const Torque torque =
                effective_torque({sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]}, 1, group);
            state.correlation = group.decay_rate * state.correlation +
                                (1 - group.decay_rate) * torque_cosine(torque, group, group.guard);
            update_tam_reference<double>(state.operands(),
                                         tam_scalars<double>(group, state.correlation, 1, t));
          }};
}

// Where λθ cancels the gradient, Adam's first step magnifies the rounding of λ to fp32, and that of
// 1 - ηλ drifts with every step, as in LibTorch: neither is the kernel's, so λ and ηλ are powers of
// two here.
std::vector<RuleCase> all_rules() {
  return {
      sgd_case("sgd", {.lr = 0.01, .weight_decay = 0.01}),
      sgd_case("momentum", {.lr = 0.01, .momentum = 0.9, .dampening = 0.1, .maximize = true}),
      sgd_case("nesterov", {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      adam_case("adam", {.lr = 0.01, .weight_decay = 0x1p-7, .decoupled = false}),
      adam_case("adamw", {.lr = 0x1p-7, .weight_decay = 0x1p-3}),
      adam_case("amsgrad",
                {.lr = 0x1p-7, .weight_decay = 0x1p-3, .amsgrad = true, .maximize = true}),
      adagrad_case("adagrad", {.lr = 0.01, .lr_decay = 0.1}),
      adagrad_case("adagrad_l2", {.lr = 0.01, .weight_decay = 0x1p-7, .maximize = true}),
      tam_case("tam", {.lr = 0.01, .weight_decay = 0.01}, false),
      tam_case("tam_decoupled",
               {.lr = 0x1p-7, .weight_decay = 0x1p-3, .decoupled = true, .maximize = true}, false),
      tam_case("adatamw", {.lr = 0x1p-13, .weight_decay = 0x1p-3, .decoupled = true}, true),
  };
}

// Largest |θ - reference| / max(|θ|, Σ|Δθ|) after 100 steps.
void check_rule(const RuleCase& rule, Index n, Index misalign, Executor& executor) {
  TensorSetOptions options = rule.slots;
  options.misalign = misalign;
  TensorSet set({n}, options);
  DoubleState state;
  const auto widen = [](std::span<const float> from) {
    return std::vector<double>(from.begin(), from.end());
  };
  state.param = widen(set.values(set.param, 0));
  state.momentum = widen(set.values(set.momentum, 0));
  state.second_moment = widen(set.values(set.second_moment, 0));
  state.extra = widen(set.values(set.extra, 0));
  std::vector<double> way(static_cast<std::size_t>(n), 0.0), before;
  double correlation = 0;
  MultiTensorPlan plan = set.plan();
  for (Index t = 1; t <= kTrainSteps; ++t) {
    set.set_step(t);
    plan.follow_or_throw(set.lists());
    rule.step(plan, {&correlation, 1}, executor);
    before = state.param;
    state.grad = widen(set.grad(0));
    rule.reference(state, t);
    for (std::size_t i = 0; i < way.size(); ++i) way[i] += std::abs(state.param[i] - before[i]);
  }
  double worst = 0;
  Index worst_at = 0;
  const auto param = set.values(set.param, 0);
  for (std::size_t i = 0; i < way.size(); ++i) {
    const double error =
        std::abs(param[i] - state.param[i]) / std::max(std::abs(state.param[i]), way[i]);
    if (!(error <= worst)) {
      worst = error;
      worst_at = static_cast<Index>(i);
    }
  }
  EXPECT_LE(worst, kTolerance) << rule.name << " n " << n << " misalign " << misalign << " at "
                               << worst_at << ": " << param[worst_at] << " for "
                               << state.param[worst_at];
  EXPECT_EQ(set.step[0], kTrainSteps);
}

TEST(Rules, match_the_double_reference_for_100_steps) {
  ThreadPool pool(2);
  for (const RuleCase& rule : all_rules()) {
    for (const Index n : {0, 1, 7, 1023, 16383, 16384, 16385}) {
      check_rule(rule, n, 0, pool);
      check_rule(rule, n, 1, pool);
    }
  }
}

TEST(Rules, match_the_double_reference_on_a_million_elements) {
  ThreadPool pool(2);
  for (const RuleCase& rule : all_rules()) check_rule(rule, 1'000'003, 3, pool);
}

// Elements whose sign argument once lay within rounding of 0 may go either way.
TEST(Rules, lion_matches_the_double_reference_where_signs_are_certain) {
  ThreadPool pool(2);
  const LionGroup group{.lr = 0x1p-10, .weight_decay = 0x1p-3, .maximize = true};
  for (const Index n : {0, 1, 7, 1023, 16385, 100'003}) {
    TensorSet set({n});
    DoubleState state;
    state.param.assign(set.param[0].begin(), set.param[0].end());
    state.momentum.assign(static_cast<std::size_t>(n), 0.0);
    std::vector<bool> certain(static_cast<std::size_t>(n), true);
    for (Index t = 1; t <= kTrainSteps; ++t) {
      set.set_step(t);
      lion_step(set.plan(), {&group, 1}, {}, pool);
      state.grad.assign(set.grad(0).begin(), set.grad(0).end());
      for (std::size_t i = 0; i < certain.size(); ++i) {
        const double g = -state.grad[i], m = state.momentum[i];
        if (std::abs(0.9 * m + 0.1 * g) < 1e-6) certain[i] = false;
      }
      update_lion_reference<double>(state.operands(), lion_scalars<double>(group, t, 1));
    }
    EXPECT_LE(std::ranges::count(certain, false), n / 1000 + 1);
    for (std::size_t i = 0; i < certain.size(); ++i) {
      if (!certain[i]) continue;
      ASSERT_NEAR(set.param[0][i], state.param[i], kTolerance) << n << " at " << i;
      ASSERT_NEAR(set.momentum[0][i], state.momentum[i], kTolerance) << n << " at " << i;
    }
  }
}

TEST(Rules, first_adam_step_worked_by_hand) {
  TensorSet set({3}, {.second_moment = true});
  const float params[] = {1.0f, -2.0f, 0.5f}, grads[] = {0.5f, -4.0f, 0.0f};
  std::copy_n(params, 3, set.values(set.param, 0).data());
  std::copy_n(grads, 3, set.grad(0).data());
  const AdamGroup group{.lr = 0.1, .weight_decay = 0.5};
  adam_step(set.plan(), {&group, 1}, {}, serial_executor());
  // θ (1 - 0.05) - 0.1 sign(g): at t = 1 both corrections leave g / |g|.
  EXPECT_NEAR(set.param[0][0], 0.95 - 0.1, 1e-6);
  EXPECT_NEAR(set.param[0][1], -1.9 + 0.1, 1e-6);
  EXPECT_NEAR(set.param[0][2], 0.475, 1e-6);
  EXPECT_NEAR(set.momentum[0][1], -0.4, 1e-7);
  EXPECT_NEAR(set.second_moment[0][1], 0.016, 1e-8);
}

TEST(Rules, bias_correction_is_exact_after_two_to_the_24_steps) {
  const AdamGroup group{.lr = 1, .beta1 = 0.9, .beta2 = 1 - 1e-9};
  const Index t = (Index{1} << 24) + 1;
  const auto scalars = adam_scalars<double>(group, t, 1);
  const double correction = -std::expm1(static_cast<double>(t) * std::log1p(-1e-9));
  EXPECT_NEAR(scalars.inverse_root_correction * std::sqrt(correction), 1, 1e-7);
  EXPECT_NE(adam_scalars<double>(group, t - 1, 1).inverse_root_correction,
            scalars.inverse_root_correction);
}

}  // namespace
}  // namespace hone::kernels
