// SPDX-License-Identifier: Apache-2.0
// What holds for the list that a rule steps, whichever the rule: threads, splits, length.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;
using test::DoubleRule;

const std::vector<Index> kMixedSizes{1, 100'003, 16'384, 7, 0, 16'385, 1023, 40'000};

std::vector<DoubleRule> all_rules() {
  std::vector<DoubleRule> rules = test::double_rules();
  rules.push_back(test::lion_double_rule());
  return rules;
}

// Tensors and s after some steps.
struct Outcome {
  Outcome(const DoubleRule& rule, const std::vector<Index>& sizes)
      : set(sizes, rule.slots), correlation(sizes.size(), 0.0) {}
  void expect_equal(const Outcome& other, const char* name) const {
    EXPECT_TRUE(same_bits(set.snapshot(), other.set.snapshot())) << name;
    EXPECT_EQ(correlation, other.correlation) << name;
    EXPECT_EQ(set.step, other.set.step) << name;
  }
  TensorSet set;
  std::vector<double> correlation;
};

// Tensors [begin, end) of the lists.
MultiTensorLists part_of(const MultiTensorLists& all, std::size_t begin, std::size_t end) {
  const auto part = [&](auto list) {
    return list.empty() ? list : list.subspan(begin, end - begin);
  };
  return {part(all.param), part(all.grad),  part(all.momentum), part(all.second_moment),
          part(all.extra), part(all.group), part(all.step)};
}

// Steps tensors [begin, end) as a list of their own.
void step_part(const DoubleRule& rule, Outcome& run, std::size_t begin, std::size_t end,
               Executor& executor) {
  const MultiTensorPlan plan =
      MultiTensorPlan::build_or_throw(part_of(run.set.lists(), begin, end));
  rule.step(plan, std::span(run.correlation).subspan(begin, end - begin), {}, executor);
}

TEST(EveryRule, has_the_same_bits_for_1_2_3_and_8_threads) {
  for (const DoubleRule& rule : all_rules()) {
    for (const StepControl& control : {StepControl{}, StepControl{.clip_norm = 1}}) {
      std::vector<Outcome> outcomes;
      for (const int threads : {1, 2, 3, 8}) {
        ThreadPool pool(threads);
        Outcome& run = outcomes.emplace_back(rule, kMixedSizes);
        for (Index t = 0; t < 4; ++t) {
          run.set.set_step(t);
          rule.step(run.set.plan(), run.correlation, control, pool);
        }
        run.expect_equal(outcomes.front(), rule.name);
      }
    }
  }
}

TEST(EveryRule, has_the_same_bits_over_any_split_of_the_list) {
  ThreadPool pool(2);
  const std::size_t count = kMixedSizes.size();
  for (const DoubleRule& rule : all_rules()) {
    Outcome whole(rule, kMixedSizes);
    for (Index t = 0; t < 3; ++t) {
      whole.set.set_step(t);
      step_part(rule, whole, 0, count, pool);
    }
    for (std::size_t cut = 1; cut < count; ++cut) {
      Outcome split(rule, kMixedSizes);
      for (Index t = 0; t < 3; ++t) {
        split.set.set_step(t);
        step_part(rule, split, cut, count, pool);
        step_part(rule, split, 0, cut, pool);
      }
      split.expect_equal(whole, rule.name);
    }
  }
}

TEST(EveryRule, each_of_two_thousand_tensors_becomes_what_it_becomes_alone) {
  std::vector<Index> sizes;
  for (Index i = 0; i < 2000; ++i) sizes.push_back(i * 37 % 1024);
  ThreadPool pool(2);
  for (const DoubleRule& rule : all_rules()) {
    Outcome together(rule, sizes), alone(rule, sizes);
    for (Index t = 0; t < 2; ++t) {
      together.set.set_step(t);
      alone.set.set_step(t);
      step_part(rule, together, 0, sizes.size(), pool);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        step_part(rule, alone, i, i + 1, serial_executor());
      }
    }
    alone.expect_equal(together, rule.name);
  }
}

}  // namespace
}  // namespace hone::kernels
