// SPDX-License-Identifier: Apache-2.0
// Lion and Adagrad: what they refuse, formulas in double written here, and what inf and NaN do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::TensorSet;
using hone::test::TensorSetOptions;
using test::error_of;
using test::kEpsilon;
using testing::Each;
using testing::HasSubstr;

constexpr double kBad = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();
const TensorSetOptions kAdagradSlots{.momentum = false, .second_moment = true};

StepReport lion(TensorSet& set, const LionGroup& group, const StepControl& control = {}) {
  return lion_step(set.plan(), {&group, 1}, control, serial_executor());
}
StepReport adagrad(TensorSet& set, const AdagradGroup& group, const StepControl& control = {}) {
  return adagrad_step(set.plan(), {&group, 1}, control, serial_executor());
}

// The message must name the rule and the field, and no number may have changed.
template <class Group, class Step>
void expect_refused(const char* op, const char* name, double Group::*field, const Step& step,
                    const TensorSetOptions& slots, std::initializer_list<double> values) {
  TensorSet set({20}, slots);
  const auto before = set.snapshot();
  for (const double value : values) {
    Group group;
    group.*field = value;
    EXPECT_THAT(error_of([&] { step(set, group, StepControl{}); }),
                HasSubstr(concat("[", op, "] expected ", name)))
        << value;
  }
  EXPECT_TRUE(hone::test::same_bits(set.snapshot(), before));
  EXPECT_THAT(set.step, Each(0));
}

TEST(LionRefuses, settings_without_meaning) {
  const auto refused = [](const char* name, double LionGroup::*field,
                          std::initializer_list<double> values) {
    expect_refused("lion_step", name, field, lion, {}, values);
  };
  refused("lr", &LionGroup::lr, {-1e-300, kBad, kEndless, -kEndless});
  refused("weight_decay", &LionGroup::weight_decay, {-1e-300, kBad, kEndless});
  refused("beta1", &LionGroup::beta1, {-0.1, 1, 1.5, kBad, kEndless});
  refused("beta2", &LionGroup::beta2, {-0.1, 1, 1.5, kBad, kEndless});
  check_group("lion_step", LionGroup{.lr = 0, .beta1 = 0, .beta2 = 0});
}

TEST(AdagradRefuses, settings_without_meaning) {
  for (const auto& [name, field] :
       {std::pair{"lr finite", &AdagradGroup::lr}, std::pair{"lr_decay", &AdagradGroup::lr_decay},
        std::pair{"weight_decay", &AdagradGroup::weight_decay},
        std::pair{"eps", &AdagradGroup::eps}}) {
    expect_refused("adagrad_step", name, field, adagrad, kAdagradSlots,
                   {-1e-300, kBad, kEndless, -kEndless});
  }
  check_group("adagrad_step", AdagradGroup{.lr = 0, .eps = 0});
}

TEST(LionAndAdagradRefuse, slots_that_are_missing_or_too_many_and_groups_that_are_not_there) {
  TensorSet momentum({9}), second({9}, kAdagradSlots), none({9}, {.momentum = false});
  TensorSet both({9}, {.second_moment = true}), lion_extra({9}, {.extra = true});
  TensorSet ada_extra({9}, {.momentum = false, .second_moment = true, .extra = true});
  const auto of_lion = [](TensorSet& set) { return error_of([&] { lion(set, {}); }); };
  const auto of_adagrad = [](TensorSet& set) { return error_of([&] { adagrad(set, {}); }); };
  EXPECT_THAT(of_lion(none), HasSubstr("[lion_step] expected a momentum list, got none"));
  EXPECT_THAT(of_lion(both), HasSubstr("no second_moment list, got one"));
  EXPECT_THAT(of_lion(lion_extra), HasSubstr("no extra list, got one"));
  EXPECT_THAT(of_adagrad(none),
              HasSubstr("[adagrad_step] expected a second_moment list, got none"));
  EXPECT_THAT(of_adagrad(both), HasSubstr("no momentum list, got one"));
  EXPECT_THAT(of_adagrad(ada_extra), HasSubstr("no extra list, got one"));
  momentum.group[0] = second.group[0] = 1;
  EXPECT_THAT(of_lion(momentum), HasSubstr("a group below 1 for tensor 0, got 1"));
  EXPECT_THAT(of_adagrad(second), HasSubstr("a group below 1 for tensor 0, got 1"));
}

// Momentum of Lion is a plain average whatever the signs were: exact to rounding, in every group.
TEST(LionForm, follows_the_formula_in_double_with_decay_and_two_groups) {
  TensorSet set({333, 70});
  set.group = {1, 0};
  const LionGroup groups[] = {{.lr = 0x1p-7, .beta1 = 0.5, .beta2 = 0.75},
                              {.lr = 0x1p-6, .weight_decay = 0.5, .maximize = true}};
  for (Index t = 0; t < 20; ++t) {
    set.set_step(t);
    const auto p = set.param, m = set.momentum;
    lion_step(set.plan(), groups, {.inv_scale = 0.25}, serial_executor());
    for (Index i = 0; i < 2; ++i) {
      const LionGroup& own = groups[set.group[static_cast<std::size_t>(i)]];
      for (Index e = 0; e < set.size(i); ++e) {
        const double g = (own.maximize ? -0.25 : 0.25) * set.grad(i)[e], old = m[i][e];
        const double mixed = own.beta1 * old + (1 - own.beta1) * g;
        ASSERT_NEAR(set.momentum[i][e], own.beta2 * old + (1 - own.beta2) * g, 4 * kEpsilon);
        if (std::abs(mixed) < 1e-6) continue;
        const double kept = (1 - own.lr * own.weight_decay) * p[i][e];
        ASSERT_NEAR(set.param[i][e], kept - std::copysign(own.lr, mixed), 2 * kEpsilon);
      }
    }
  }
  EXPECT_THAT(set.step, Each(20));
}

TEST(AdagradForm, follows_the_formula_in_double_from_an_initial_sum_with_decay) {
  TensorSet set({333}, kAdagradSlots);
  std::ranges::fill(set.second_moment[0], 0.5f);
  std::vector<double> p(set.param[0].begin(), set.param[0].end()), a(333, 0.5);
  const AdagradGroup group{.lr = 0.25, .lr_decay = 0.125, .weight_decay = 0.5, .eps = 0.01};
  for (Index t = 1; t <= 30; ++t) {
    set.set_step(t);
    adagrad(set, group, {.inv_scale = 2});
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = 2.0 * set.grad(0)[i] + 0.5 * p[i];
      a[i] += g * g;
      p[i] -= 0.25 / (1 + 0.125 * static_cast<double>(t - 1)) * g / (std::sqrt(a[i]) + 0.01);
    }
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    ASSERT_NEAR(set.param[0][i], p[i], 30 * kEpsilon) << i;
    ASSERT_NEAR(set.second_moment[0][i], a[i], 30 * kEpsilon * a[i]) << i;
  }
}

TEST(AdagradForm, decay_takes_the_counter_of_each_tensor) {
  TensorSet set({8, 8}, kAdagradSlots);
  set.step = {0, 999};
  for (Index i = 0; i < 2; ++i) {
    std::ranges::fill(set.param[i], 0.0f);
    std::ranges::fill(set.grad(i), 4.0f);
  }
  adagrad(set, {.lr = 0.5, .lr_decay = 0.25, .eps = 0});
  EXPECT_THAT(set.param[0], Each(-0.5f));
  EXPECT_THAT(set.param[1], Each(testing::FloatNear(-0.5f / (1 + 999 * 0.25f), 1e-9f)));
  EXPECT_EQ(set.step, (std::vector<Index>{1, 1000}));
}

// Without a check bad gradients pass through, and stay in their element.
TEST(LionAndAdagrad, a_bad_gradient_hurts_its_own_element_and_no_other) {
  for (const float bad : {test::kNan, test::kInfinity, -test::kInfinity}) {
    for (const Index at : {0, 15, 16, 36}) {
      TensorSet hurt_lion({37}), clean_lion({37});
      TensorSet hurt_ada({37}, kAdagradSlots), clean_ada({37}, kAdagradSlots);
      hurt_lion.grad(0)[at] = hurt_ada.grad(0)[at] = bad;
      for (TensorSet* set : {&hurt_lion, &clean_lion}) EXPECT_TRUE(lion(*set, {}).stepped);
      for (TensorSet* set : {&hurt_ada, &clean_ada}) EXPECT_TRUE(adagrad(*set, {}).stepped);
      for (Index i = 0; i < 37; ++i) {
        if (i == at) continue;
        ASSERT_EQ(hurt_lion.param[0][i], clean_lion.param[0][i]);
        ASSERT_EQ(hurt_ada.param[0][i], clean_ada.param[0][i]);
      }
      // The sign of infinity is a step like any other; its average is not finite.
      EXPECT_EQ(std::isnan(hurt_lion.param[0][at]), std::isnan(bad));
      EXPECT_FALSE(std::isfinite(hurt_lion.momentum[0][at]));
      EXPECT_TRUE(std::isnan(hurt_ada.param[0][at])) << "inf / inf";
      EXPECT_FALSE(std::isfinite(hurt_ada.second_moment[0][at]));
    }
  }
}

TEST(LionAndAdagrad, a_skipped_step_leaves_numbers_counters_and_gradients) {
  for (const StepControl& control :
       {StepControl{.skip_nonfinite = true}, StepControl{.inv_scale = 0.5},
        StepControl{.checked = true, .grad = GradWriteBack::Zero}}) {
    TensorSet of_lion({100, 20'000}), of_ada({100, 20'000}, kAdagradSlots);
    for (TensorSet* set : {&of_lion, &of_ada}) {
      set->grad(1)[19'999] = test::kNan;
      const auto before = set->snapshot();
      const float kept = set->grad(0)[3];
      const StepReport report =
          set == &of_lion ? lion(*set, {}, control) : adagrad(*set, {}, control);
      EXPECT_FALSE(report.stepped);
      EXPECT_EQ(report.first_nonfinite_tensor, 1);
      EXPECT_TRUE(hone::test::same_bits(set->snapshot(), before));
      EXPECT_THAT(set->step, Each(0));
      EXPECT_EQ(set->grad(0)[3], kept);
    }
  }
}

// Adagrad's step does not change when all gradients grow alike (ε = 0, no decay).
TEST(AdagradForm, ignores_the_size_of_gradients) {
  for (const float size : {0x1p-40f, 0x1p40f}) {
    TensorSet plain({700}, kAdagradSlots);
    TensorSetOptions options = kAdagradSlots;
    options.scale = size;
    TensorSet scaled({700}, options);
    for (Index t = 0; t < 10; ++t) {
      plain.set_step(t);
      scaled.set_step(t);
      adagrad(plain, {.eps = 0});
      adagrad(scaled, {.eps = 0});
    }
    EXPECT_EQ(scaled.param, plain.param) << size;
  }
}

}  // namespace
}  // namespace hone::kernels
