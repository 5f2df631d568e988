// SPDX-License-Identifier: Apache-2.0
// The rules by closed forms and symmetries that no reference code can share a mistake with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;
using hone::test::TensorSetOptions;
using test::kEpsilon;

// One step of each rule with settings that use every term, by name.
struct AnyRule {
  const char* name;
  TensorSetOptions slots;
  std::function<void(TensorSet&, bool maximize, const StepControl&)> step;
};

template <class Group, class Step>
AnyRule rule_of(const char* name, const TensorSetOptions& slots, const Group& group,
                const Step& step) {
  return {name, slots, [=](TensorSet& set, bool maximize, const StepControl& control) {
            Group own = group;
            own.lr = 0.125;
            own.weight_decay = 0.25;
            own.maximize = maximize;
            step(set.plan(), std::span<const Group>(&own, 1), control, serial_executor());
          }};
}

std::vector<AnyRule> any_rules() {
  const auto tam = [](const MultiTensorPlan& plan, std::span<const TAMGroup> groups,
                      const StepControl& control, Executor& executor) {
    std::vector<double> s(static_cast<std::size_t>(plan.tensors()), 0.5);
    tam_step(plan, groups, TAMScope::Tensor, s, control, executor);
  };
  const TensorSetOptions only_v{.momentum = false, .second_moment = true};
  const TensorSetOptions m_and_v{.second_moment = true};
  const TensorSetOptions all{.second_moment = true, .extra = true};
  return {
      rule_of("sgd", {.momentum = false}, SGDGroup{}, sgd_step),
      rule_of("lion", {}, LionGroup{}, lion_step),
      rule_of("adagrad", only_v, AdagradGroup{.lr_decay = 0.5}, adagrad_step),
      rule_of("rmsprop", only_v, RMSpropGroup{}, rmsprop_step),
      rule_of("rmsprop_all", all, RMSpropGroup{.momentum = 0.75, .centered = true}, rmsprop_step),
      rule_of("momentum", {}, SGDGroup{.momentum = 0.75}, sgd_step),
      rule_of("nesterov", {}, SGDGroup{.momentum = 0.75, .nesterov = true}, sgd_step),
      rule_of("adam", m_and_v, AdamGroup{.decoupled = false}, adam_step),
      rule_of("adamw", m_and_v, AdamGroup{.decoupled = true}, adam_step),
      rule_of("amsgrad", all, AdamGroup{.decoupled = true, .amsgrad = true}, adam_step),
      rule_of("tam", {}, TAMGroup{.decoupled = true}, tam),
      rule_of("adatamw", m_and_v, TAMGroup{.decoupled = true}, tam)};
}

void run(const AnyRule& rule, TensorSet& set, int steps = 5, const StepControl& control = {},
         bool maximize = false) {
  for (Index t = 0; t < steps; ++t) {
    set.set_step(t);
    rule.step(set, maximize, control);
  }
}

TEST(AnyRule, maximizing_is_minimizing_the_negative) {
  for (const AnyRule& rule : any_rules()) {
    TensorSet down({1000, 37}, rule.slots), up({1000, 37}, rule.slots);
    for (Index t = 0; t < 4; ++t) {
      down.set_step(t);
      up.set_step(t);
      rule.step(down, false, {});
      std::vector<std::vector<float>> negative;
      for (Index i = 0; i < 2; ++i) {
        negative.emplace_back(up.grad(i).begin(), up.grad(i).end());
        for (float& g : negative.back()) g = -g;
        up.view_of(Slot::Grad, i).data = negative.back().data();
      }
      rule.step(up, true, {});
    }
    EXPECT_TRUE(same_bits(up.snapshot(), down.snapshot())) << rule.name;
  }
}

TEST(AnyRule, an_element_does_not_know_where_in_the_tensor_it_lies) {
  for (const AnyRule& rule : any_rules()) {
    for (const Index n : {5, 16, 37, 100}) {
      TensorSet straight({n}, rule.slots), turned({n}, rule.slots);
      // TAM's sums run over all elements: make them exact, so that their order does not matter.
      std::ranges::copy(test::random_integers(n, 1, 8), straight.grad(0).begin());
      std::ranges::copy(straight.grad(0), turned.grad(0).begin());
      std::ranges::reverse(turned.grad(0));
      std::ranges::reverse(turned.param[0]);
      rule.step(straight, false, {});
      rule.step(turned, false, {});
      for (auto* list : {&turned.param, &turned.momentum, &turned.second_moment, &turned.extra})
        std::ranges::reverse((*list)[0]);
      EXPECT_TRUE(same_bits(turned.snapshot(), straight.snapshot())) << rule.name << " " << n;
    }
  }
}

TEST(AnyRule, alignment_changes_no_bit) {
  for (const AnyRule& rule : any_rules()) {
    TensorSet aligned({1001}, rule.slots);
    run(rule, aligned);
    for (const Index misalign : {1, 2, 3, 5}) {
      TensorSetOptions options = rule.slots;
      options.misalign = misalign;
      TensorSet shifted({1001}, options);
      // The random arrays of a shifted set begin earlier: give both the same values.
      TensorSet fresh({1001}, rule.slots);
      std::ranges::copy(fresh.values(fresh.param, 0), shifted.values(shifted.param, 0).begin());
      for (Index t = 0; t < 5; ++t) {
        shifted.set_step(t);
        fresh.set_step(t);
        std::vector<float> grad(1001 + static_cast<std::size_t>(misalign));
        std::ranges::copy(fresh.grad(0), grad.begin() + misalign);
        shifted.view_of(Slot::Grad, 0).data = grad.data() + misalign;
        rule.step(shifted, false, {});
      }
      EXPECT_TRUE(
          std::ranges::equal(shifted.values(shifted.param, 0), aligned.values(aligned.param, 0)))
          << rule.name << " by " << misalign;
    }
  }
}

TEST(AnyRule, scaling_loss_and_unscaling_by_a_power_of_two_changes_no_bit) {
  for (const AnyRule& rule : any_rules()) {
    TensorSet plain({700, 3}, rule.slots);
    TensorSetOptions options = rule.slots;
    options.scale = 4096;
    TensorSet large({700, 3}, options);
    run(rule, plain);
    run(rule, large, 5, {.inv_scale = 1.0 / 4096});
    EXPECT_TRUE(same_bits(large.snapshot(), plain.snapshot())) << rule.name;
  }
}

TEST(AnyRule, a_checked_step_that_succeeds_has_the_bits_of_a_plain_one) {
  for (const AnyRule& rule : any_rules()) {
    TensorSet plain({20'000, 5, 0}, rule.slots), checked({20'000, 5, 0}, rule.slots);
    run(rule, plain);
    run(rule, checked, 5, {.checked = true});
    EXPECT_TRUE(same_bits(checked.snapshot(), plain.snapshot())) << rule.name;
    EXPECT_EQ(checked.step, plain.step);
  }
}

TEST(AnyRule, a_checked_step_that_fails_changes_nothing_wherever_the_bad_value_is) {
  for (const AnyRule& rule : any_rules()) {
    for (const Index at : {0, 13, 16'384, 19'999}) {
      TensorSet set({100, 20'000}, rule.slots);
      set.grad(1)[at] = test::kNan;
      const auto before = set.snapshot();
      rule.step(set, false, {.checked = true, .grad = GradWriteBack::Zero});
      EXPECT_TRUE(same_bits(set.snapshot(), before)) << rule.name << " at " << at;
      EXPECT_NE(set.grad(0)[3], 0) << "the gradient too stays";
      EXPECT_EQ(set.step, (std::vector<Index>{0, 0}));
    }
  }
}

TEST(AnyRule, the_reference_kernels_agree_to_rounding) {
  for (const AnyRule& rule : any_rules()) {
    TensorSet vector({3000, 17}, rule.slots), plain({3000, 17}, rule.slots);
    run(rule, vector);
    ::setenv("HONE_FORCE_KERNEL", "multi_tensor:ref", 1);
    run(rule, plain);
    ::unsetenv("HONE_FORCE_KERNEL");
    for (Index i = 0; i < 2; ++i) {
      for (std::size_t e = 0; e < vector.param[i].size(); ++e)
        ASSERT_NEAR(vector.param[i][e], plain.param[i][e], 40 * kEpsilon) << rule.name;
    }
  }
}

// ---- closed forms

// One tensor with this gradient at every step, parameters from zero.
template <class Group, class Step>
float walk(const TensorSetOptions& slots, float gradient, int steps, const Group& group,
           const Step& step) {
  TensorSet set({19}, slots);
  std::ranges::fill(set.param[0], 0.0f);
  for (int t = 0; t < steps; ++t) {
    set.set_step(0);
    std::ranges::fill(set.grad(0), gradient);
    step(set.plan(), std::span<const Group>(&group, 1), StepControl{}, serial_executor());
  }
  EXPECT_EQ(set.step[0], steps);
  for (const float p : set.param[0]) EXPECT_EQ(p, set.param[0][0]);
  return set.param[0][0];
}

TEST(SGDForm, constant_gradients_move_along_the_geometric_sum) {
  EXPECT_EQ(walk({.momentum = false}, 2, 8, SGDGroup{.lr = 0.25}, sgd_step), -4);
  for (const int steps : {1, 2, 3, 10, 40}) {
    double momentum = 0, plain = 0, nesterov = 0, damped_m = 0, damped = 0;
    for (int t = 1; t <= steps; ++t) {
      momentum = 0.5 * momentum + 2;
      plain -= 0.125 * momentum;
      nesterov -= 0.125 * (2 + 0.5 * momentum);
      damped_m = t == 1 ? 2 : 0.5 * damped_m + 0.75 * 2;
      damped -= 0.125 * damped_m;
    }
    const auto near = [&](double wanted, const SGDGroup& group) {
      EXPECT_NEAR(walk({}, 2, steps, group, sgd_step), wanted, 8 * kEpsilon * std::abs(wanted))
          << steps;
    };
    near(plain, {.lr = 0.125, .momentum = 0.5});
    near(nesterov, {.lr = 0.125, .momentum = 0.5, .nesterov = true});
    near(damped, {.lr = 0.125, .momentum = 0.5, .dampening = 0.25});
  }
}

TEST(SGDForm, weight_decay_alone_shrinks_geometrically) {
  TensorSet set({40}, {.momentum = false});
  const auto before = set.param[0];
  for (int t = 0; t < 6; ++t) {
    std::ranges::fill(set.grad(0), 0.0f);
    const SGDGroup group{.lr = 0.5, .weight_decay = 0.5};
    sgd_step(set.plan(), {&group, 1}, {}, serial_executor());
  }
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_NEAR(set.param[0][i], before[i] * std::pow(0.75, 6), 6 * kEpsilon);
}

// With a constant gradient both corrected moments equal it and its square.
TEST(AdamForm, constant_gradients_move_by_the_rate_whatever_their_size) {
  for (const float gradient : {1e-15f, 1e-3f, 1.0f, -7.0f, 1e15f}) {
    for (const bool amsgrad : {false, true}) {
      const AdamGroup group{.lr = 0.01, .eps = 0, .amsgrad = amsgrad};
      const float got =
          walk({.second_moment = true, .extra = amsgrad}, gradient, 50, group, adam_step);
      EXPECT_NEAR(got, gradient > 0 ? -0.5 : 0.5, 1e-5) << gradient;
    }
  }
}

TEST(AdamForm, decoupled_decay_shrinks_by_the_rate_and_leaves_the_moments_alone) {
  TensorSet set({33}, {.second_moment = true});
  const auto before = set.param[0];
  const AdamGroup group{.lr = 0.5, .weight_decay = 0.5};
  for (int t = 0; t < 4; ++t) {
    std::ranges::fill(set.grad(0), 0.0f);
    adam_step(set.plan(), {&group, 1}, {}, serial_executor());
  }
  for (std::size_t i = 0; i < 33; ++i) {
    EXPECT_NEAR(set.param[0][i], before[i] * std::pow(0.75, 4), 8 * kEpsilon);
    EXPECT_EQ(set.momentum[0][i], 0);
    EXPECT_EQ(set.second_moment[0][i], 0);
  }
}

TEST(AdamForm, amsgrad_never_forgets_the_largest_second_moment) {
  TensorSet set({20}, {.second_moment = true, .extra = true});
  const AdamGroup group{.lr = 0.01, .beta2 = 0.5, .amsgrad = true};
  float largest = 0;
  for (const float gradient : {1.0f, 8.0f, 0.0f, 0.0f, 2.0f, 0.0f}) {
    std::ranges::fill(set.grad(0), gradient);
    adam_step(set.plan(), {&group, 1}, {}, serial_executor());
    largest = std::max(largest, set.second_moment[0][7]);
    for (const float kept : set.extra[0]) ASSERT_EQ(kept, largest);
  }
  EXPECT_LT(set.second_moment[0][7], largest / 8);
}

TEST(AdamForm, tensors_of_one_call_take_the_settings_of_their_group_and_their_own_step) {
  TensorSet set({5, 5, 5}, {.second_moment = true});
  for (Index i = 0; i < 3; ++i) {
    std::ranges::fill(set.param[i], 0.0f);
    std::ranges::fill(set.grad(i), 1.0f);
  }
  set.group = {1, 0, 1};
  set.step = {0, 0, 99};
  const AdamGroup groups[] = {{.lr = 0.5, .eps = 0}, {.lr = 0.25, .eps = 0}};
  adam_step(set.plan(), groups, {}, serial_executor());
  EXPECT_NEAR(set.param[0][0], -0.25, 1e-6);
  EXPECT_NEAR(set.param[1][0], -0.5, 1e-6);
  // Step 100 of a tensor without history: m = 0.1, v = 0.001, corrected.
  const double m = 0.1 / (1 - std::pow(0.9, 100)), v = 0.001 / (1 - std::pow(0.999, 100));
  EXPECT_NEAR(set.param[2][0], -0.25 * m / std::sqrt(v), 1e-5);
  EXPECT_EQ(set.step, (std::vector<Index>{1, 1, 100}));
}

TEST(LionForm, steps_by_the_rate_and_rests_at_zero) {
  for (const float gradient : {1e-20f, 0.5f, -3.0f, 1e20f}) {
    const float way = walk({}, gradient, 40, LionGroup{.lr = 0.25}, lion_step);
    EXPECT_EQ(way, gradient > 0 ? -10 : 10) << gradient;
  }
  EXPECT_EQ(walk({}, 0, 5, LionGroup{.lr = 0.25}, lion_step), 0);
}

// With g = 1 throughout a = t: the way is the sum of η / (1 + (t - 1) η_d) / sqrt(t).
TEST(AdagradForm, constant_gradients_move_by_the_decaying_sum) {
  double wanted = 0;
  for (int t = 1; t <= 50; ++t) wanted -= 0.5 / (1 + (t - 1) * 0.25) / std::sqrt(t);
  const float got = walk({.momentum = false, .second_moment = true}, 1, 50,
                         AdagradGroup{.lr = 0.5, .lr_decay = 0.25}, adagrad_step);
  EXPECT_NEAR(got, wanted, 40 * kEpsilon);
}

TEST(TAMForm, a_turn_of_the_gradient_is_damped_and_agreement_is_not) {
  const TAMGroup group{.lr = 1, .momentum = 0.5, .decay_rate = 0, .eps = 0};
  for (const float sign : {1.0f, -1.0f}) {
    TensorSet set({24});
    std::ranges::fill(set.param[0], 0.0f);
    std::ranges::fill(set.momentum[0], 2.0f);
    std::ranges::fill(set.grad(0), 4 * sign);
    double s = 0;
    tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    EXPECT_NEAR(s, sign, 1e-9);  // parallel or opposite
    // m = 0.5 * 2 + d * g with d = 1 for agreement, 0 for a full turn.
    EXPECT_NEAR(set.momentum[0][3], sign > 0 ? 5 : 1, 1e-5);
    EXPECT_NEAR(set.param[0][3], sign > 0 ? -5 : -1, 1e-5);
  }
}

}  // namespace
}  // namespace hone::kernels
