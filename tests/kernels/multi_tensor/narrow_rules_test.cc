// SPDX-License-Identifier: Apache-2.0
// Every rule with parameters, gradients and moments in bf16: what one step stores is a neighbour of
// what it computes in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/core/thread_pool.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::MixedTensor;
using test::DoubleRule;

constexpr Dtype kBrain = Dtype::BFloat16;

std::vector<DoubleRule> all_rules() {
  std::vector<DoubleRule> rules = test::double_rules();
  rules.push_back(test::lion_double_rule());
  return rules;
}

MixedSet make_set(const DoubleRule& rule, Index n, Dtype dtype) {
  return MixedSet({{.shape = Shape{n},
                    .param = dtype,
                    .grad = dtype,
                    .momentum = dtype,
                    .second_moment = dtype}},
                  {.momentum = rule.slots.momentum,
                   .second_moment = rule.slots.second_moment,
                   .extra = rule.slots.extra});
}

std::vector<Slot> slots_of(const DoubleRule& rule) {
  std::vector<Slot> slots{Slot::Param};
  if (rule.slots.momentum) slots.push_back(Slot::Momentum);
  if (rule.slots.second_moment) slots.push_back(Slot::SecondMoment);
  return slots;
}

// A unit in the last place of a bf16 number of this size.
float brain_unit(float value) { return value == 0 ? 0 : std::ldexp(1.0f, std::ilogb(value) - 7); }

// Steps an f32 set from the numbers that the bf16 one holds, and both by the same gradient.
struct Twins {
  Twins(const DoubleRule& rule_in, Index n)
      : rule(rule_in), narrow(make_set(rule, n, kBrain)), full(make_set(rule, n, Dtype::Float32)) {}

  void step(bool compare, Executor& executor) {
    if (!compare) {
      step_one(narrow, narrow_s, executor);
      return;
    }
    full.write(Slot::Grad, 0, narrow.read(Slot::Grad, 0));
    for (const Slot slot : slots_of(rule)) full.write(slot, 0, narrow.read(slot, 0));
    if (rule.slots.extra) full.write(Slot::Extra, 0, narrow.read(Slot::Extra, 0));
    full.step = narrow.step;
    full_s = narrow_s;
    step_one(narrow, narrow_s, executor);
    step_one(full, full_s, executor);
    EXPECT_EQ(full_s, narrow_s) << rule.name;
    for (const Slot slot : slots_of(rule)) expect_neighbours(slot);
  }

 private:
  void step_one(MixedSet& set, double& s, Executor& executor) {
    rule.step(set.plan(), {&s, 1}, {.rounding_seed = 5}, executor);
  }
  void expect_neighbours(Slot slot) {
    const auto got = narrow.read(slot, 0), exact = full.read(slot, 0);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float off = std::abs(got[i] - exact[i]);
      ASSERT_TRUE(off == 0 || off < brain_unit(exact[i]))
          << rule.name << " slot " << int(slot) << " of " << got.size() << " at " << i << " step "
          << narrow.step[0] << ": " << got[i] << " for " << exact[i];
    }
  }

  const DoubleRule& rule;

 public:
  MixedSet narrow, full;
  double narrow_s = 0, full_s = 0;
};

TEST(NarrowRules, Oracle1_bf16_storage_is_within_one_unit_of_f32_in_each_of_100_steps) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : all_rules()) {
    for (const Index n : {0, 1, 7, 1023, 16383, 16384, 16385}) {
      Twins twins(rule, n);
      for (Index t = 0; t < test::kTrainSteps; ++t) {
        if (t < 10) twins.narrow.draw_gradient(0, t);
        twins.step(true, pool);
        if (HasFatalFailure()) return;
      }
      EXPECT_EQ(twins.narrow.step[0], test::kTrainSteps);
    }
  }
}

TEST(NarrowRules, Oracle1_bf16_storage_of_a_million_elements_is_within_one_unit) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : all_rules()) {
    Twins twins(rule, 1'000'003);
    for (Index t = 0; t < test::kTrainSteps; ++t) {
      if (t % 50 == 0) twins.narrow.draw_gradient(0, t);
      twins.step(t == 0 || t == 1 || t == 50 || t == 99, pool);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace hone::kernels
