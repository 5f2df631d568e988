// SPDX-License-Identifier: Apache-2.0
// TAM's methods: which go together, what is refused, and closed forms of the less common ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::MixedTensor;
using test::error_of;
using testing::Each;
using testing::HasSubstr;

constexpr TAMMethod kTensor{.scope = TAMScope::Tensor}, kModel{.scope = TAMScope::Model};

TAMMethod rows_of(Index length) { return {.scope = TAMScope::Row, .row_length = length}; }

// Tensors with one method each and places for their s.
struct Steps {
  Steps(std::vector<MixedTensor> tensors, std::vector<TAMMethod> methods_in,
        const hone::test::MixedSlots& used = {})
      : set(std::move(tensors), used), methods(std::move(methods_in)) {
    for (Index i = 0; i < set.tensors(); ++i) {
      const TAMMethod& method = methods[methods.size() == 1 ? 0 : std::size_t(i)];
      const bool by_row = method.scope == TAMScope::Row && method.row_length > 0;
      set.row_length.push_back(by_row ? method.row_length : 0);
      s.emplace_back(std::size_t(by_row ? set.elements(i) / method.row_length : 1), 0.25);
    }
  }
  StepReport step(const TAMGroup& group, const StepControl& control = {},
                  Executor& executor = serial_executor()) {
    std::vector<double*> places;
    for (auto& values : s) places.push_back(values.data());
    return tam_step(set.plan(), {&group, 1}, {.of_tensor = methods, .correlation = places}, control,
                    executor);
  }
  std::string refusal(const TAMGroup& group = {}) {
    return error_of([&] { step(group); });
  }
  MixedSet set;
  std::vector<TAMMethod> methods;
  std::vector<std::vector<double>> s;
};

TEST(TamMethodsRefuse, another_number_of_them_and_model_beside_others) {
  Steps two({{Shape{9}}, {Shape{9}}, {Shape{9}}}, {kTensor, kTensor, kTensor});
  two.methods.pop_back();
  EXPECT_THAT(two.refusal(), HasSubstr("[tam_step] expected 3 methods or 1, got 2"));
  two.methods.clear();
  EXPECT_THAT(two.refusal(), HasSubstr("3 methods or 1, got 0"));
  for (const bool first : {false, true}) {
    Steps mixed({{Shape{9}}, {Shape{9}}}, {first ? kModel : kTensor, first ? kTensor : kModel});
    EXPECT_THAT(mixed.refusal(), HasSubstr("scope Model for all tensors or none, got both"));
  }
}

TEST(TamMethodsRefuse, rows_that_the_plan_does_not_keep_whole) {
  Steps run({{Shape{3, 10'000}}}, {rows_of(10'000)});
  EXPECT_EQ(run.refusal(), "no error");
  const auto before = run.set.bytes();
  for (const Index length : {0, 5000, 30'000}) {
    run.set.row_length[0] = length;
    EXPECT_THAT(run.refusal(), HasSubstr("a plan with rows of 10000 for tensor 0, got"));
  }
  run.methods[0].row_length = 7;
  EXPECT_THAT(run.refusal(), HasSubstr("a row length that divides 30000 for tensor 0, got 7"));
  run.methods[0].row_length = 0;
  EXPECT_THAT(run.refusal(), HasSubstr("a row length that divides 30000"));
  EXPECT_EQ(run.set.bytes(), before);
}

TEST(TamMethodsRefuse, one_correlation_per_tensor_where_every_row_has_one) {
  Steps run({{Shape{4, 5}}}, {rows_of(5)});
  std::vector<double> one(1, 0.5);
  const TAMGroup group;
  EXPECT_THAT(error_of([&] {
                tam_step(run.set.plan(), {&group, 1},
                         {.of_tensor = run.methods, .correlation = {}, .values = one}, {},
                         serial_executor());
              }),
              HasSubstr("one correlation per row of tensor 0"));
}

TEST(TamMethodsRefuse, a_slot_that_the_rule_has_not) {
  EXPECT_THAT(Steps({{Shape{4, 5}}}, {kTensor}, {.extra = true}).refusal(),
              HasSubstr("no extra list"));
}

TEST(TamMethodsRefuse, bias_correction_and_negative_damping_without_meaning) {
  Steps run({{Shape{6}}}, {kTensor});
  EXPECT_THAT(run.refusal({.bias_correction = true}),
              HasSubstr("a second_moment list with bias_correction, got none"));
  for (const double d : {-0.5, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(run.refusal({.fixed_damping = d}), HasSubstr("fixed_damping finite"));
  }
  EXPECT_EQ(run.refusal({.fixed_damping = 0}), "no error");
}

// Whatever stands beside a tensor in the list changes nothing for it.
TEST(TamMethods, of_all_kinds_in_one_call_equal_calls_apart) {
  const std::vector<MixedTensor> tensors{{Shape{3000}}, {Shape{30, 700}}, {Shape{20'000}}};
  const std::vector<TAMMethod> methods{kTensor, rows_of(700), kTensor};
  for (const double clip : {0.0, 1e9}) {
    Steps together(tensors, methods, {.second_moment = true});
    for (Index t = 0; t < 4; ++t) {
      together.set.draw_gradients(t);
      ThreadPool pool(3);
      together.step({.lr = 0.01}, {.clip_norm = clip}, pool);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Steps alone({tensors[i]}, {methods[i]}, {.second_moment = true});
      const auto at = static_cast<Index>(i);
      alone.set.write(Slot::Param, 0, test::random_values(alone.set.elements(0), 50 + i));
      for (Index t = 0; t < 4; ++t) {
        together.set.draw_gradient(at, t);
        alone.set.write(Slot::Grad, 0, together.set.read(Slot::Grad, at));
        alone.step({.lr = 0.01});
      }
      for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::SecondMoment}) {
        EXPECT_EQ(alone.set.read(slot, 0), together.set.read(slot, at)) << i << clip;
      }
      EXPECT_EQ(alone.s[0], together.s[i]) << i;
    }
  }
}

// S of a row of one is the sign of m g: every element is a scalar recurrence of its own.
TEST(TamRows, of_one_element_follow_their_scalar_recurrence) {
  const Index n = 20'011;
  Steps run({{Shape{n, 1}}}, {rows_of(1)});
  std::ranges::fill(run.s[0], 0.0);
  const auto start = run.set.read(Slot::Param, 0);
  std::vector<double> p(start.begin(), start.end()), m(p.size()), s(p.size());
  for (Index t = 0; t < 25; ++t) {
    run.set.draw_gradient(0, t);
    const auto before = run.set.read(Slot::Momentum, 0), g = run.set.read(Slot::Grad, 0);
    run.step({.lr = 0.01});
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double sign = before[i] == 0 ? 0 : (before[i] > 0) == (g[i] > 0) ? 1 : -1;
      const bool tiny = std::abs(before[i]) < 1e-7 || std::abs(g[i]) < 1e-7;  // guard acts
      s[i] = tiny ? run.s[0][i] : 0.9 * s[i] + 0.1 * sign;
      m[i] = 0.9 * m[i] + (1e-8 + (1 + s[i]) / 2) * g[i];
      p[i] -= 0.01 * m[i];
    }
  }
  const auto got = run.set.read(Slot::Param, 0);
  for (std::size_t i = 0; i < p.size(); ++i) {
    ASSERT_NEAR(run.s[0][i], s[i], 1e-12) << i;
    ASSERT_NEAR(got[i], p[i], 2e-6) << i;
  }
}

TEST(TamRows, with_fixed_damping_are_sgd_with_momentum_and_leave_every_s) {
  Steps rows({{Shape{50, 600}}}, {rows_of(600)}), whole({{Shape{50, 600}}}, {kTensor});
  const TAMGroup group{.lr = 0.01, .eps = 0, .fixed_damping = 0.375};
  for (Index t = 0; t < 6; ++t) {
    for (Steps* run : {&rows, &whole}) {
      run->set.draw_gradient(0, t);
      run->step(group);
    }
  }
  EXPECT_EQ(rows.set.bytes(), whole.set.bytes());
  EXPECT_THAT(rows.s[0], Each(0.25));
  EXPECT_THAT(whole.s[0], Each(0.25));
  rows.set.draw_gradient(0, 6);
  const auto m = rows.set.read(Slot::Momentum, 0), g = rows.set.read(Slot::Grad, 0);
  rows.step(group);
  const auto next = rows.set.read(Slot::Momentum, 0);
  for (std::size_t i = 0; i < m.size(); ++i) ASSERT_NEAR(next[i], 0.9 * m[i] + 0.375 * g[i], 1e-6);
}

TEST(TamMethods, a_skipped_step_leaves_s_and_measures_again_afterwards) {
  for (const bool model : {false, true}) {
    for (const bool checked : {false, true}) {
      Steps run({{Shape{20'000}}, {Shape{77}}}, {model ? kModel : kTensor});
      for (Index t = 0; t < 3; ++t) {
        run.set.draw_gradients(t);
        EXPECT_TRUE(run.step({.lr = 0.01}).stepped);
      }
      const auto s = run.s;
      EXPECT_NE(s[0][0], 0.25);
      auto bad = run.set.read(Slot::Grad, 1);
      bad[76] = test::kNan;
      run.set.write(Slot::Grad, 1, bad);
      const auto before = run.set.bytes();
      const StepReport report =
          run.step({.lr = 0.01}, {.checked = checked, .skip_nonfinite = !checked});
      EXPECT_FALSE(report.stepped);
      // In a checked step of scope Model the s of all tensors is NaN then.
      EXPECT_EQ(report.first_nonfinite_tensor, model && checked ? 0 : 1);
      EXPECT_EQ(run.s, s);
      EXPECT_EQ(run.set.bytes(), before);
      EXPECT_EQ(run.set.step, (std::vector<Index>{3, 3}));
      run.set.draw_gradients(3);
      EXPECT_TRUE(run.step({.lr = 0.01}).stepped);
      EXPECT_NE(run.s[0][0], s[0][0]);
    }
  }
}

// A constant gradient and damping d: m = d g (1 - β^t), v = g² (1 - β2^t), corrected by just that.
TEST(TamBiasCorrection, makes_every_step_of_a_constant_gradient_the_same) {
  for (const bool average : {false, true}) {
    for (const TAMMethod& method : {kTensor, kModel, rows_of(8)}) {
      Steps run({{Shape{4, 8}}}, {method}, {.second_moment = true});
      const TAMGroup group{.lr = 0.125,
                           .momentum = 0.75,
                           .beta2 = 0.99,
                           .eps = 0.5,
                           .fixed_damping = 0.25,
                           .average_momentum = average,
                           .bias_correction = true};
      run.set.write(Slot::Grad, 0, std::vector<float>(32, -1.5f));
      for (Index t = 1; t <= 1000; ++t) {
        run.set.write(Slot::Param, 0, std::vector<float>(32, 0.0f));
        run.step(group);
        // ε also stands beside d.
        const double want = 0.125 * 0.75 * 1.5 / (1.5 + 0.5) * (average ? 1 : 4);
        for (const float p : run.set.read(Slot::Param, 0)) ASSERT_NEAR(p / want, 1, 1e-5) << t;
      }
    }
  }
}

}  // namespace
}  // namespace hone::kernels
