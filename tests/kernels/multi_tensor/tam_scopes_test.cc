// SPDX-License-Identifier: Apache-2.0
// TAM by row, by element, with a lagged cosine and with a fixed damping.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;

// Steps one tensor by rows; s has one value per row.
struct Rows {
  Rows(Index rows, Index length, bool adaptive = false)
      : set({rows * length}, {.second_moment = adaptive}),
        lengths{length},
        s(static_cast<std::size_t>(rows)) {}
  StepReport step(const TAMGroup& group, const StepControl& control = {},
                  Executor& executor = serial_executor()) {
    MultiTensorLists lists = set.lists();
    lists.row_length = lengths;
    const TAMMethod method{.scope = TAMScope::Row, .row_length = lengths[0]};
    double* place = s.data();
    return tam_step(MultiTensorPlan::build_or_throw(lists), {&group, 1},
                    {.of_tensor = {&method, 1}, .correlation = {&place, 1}}, control, executor);
  }
  TensorSet set;
  std::vector<Index> lengths;
  std::vector<double> s;
};

TEST(TamRows, one_row_equals_scope_tensor) {
  for (const Index n : {1, 37, 16'384, 50'000}) {
    Rows rows(1, n);
    TensorSet whole({n});
    double s = 0;
    const TAMGroup group{.lr = 0.01, .weight_decay = 0.1, .guard = CosineGuard::Clamp};
    for (Index t = 0; t < 10; ++t) {
      rows.set.set_step(t);
      whole.set_step(t);
      rows.step(group);
      tam_step(whole.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    }
    EXPECT_NEAR(rows.s[0], s, 1e-9) << n;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      ASSERT_NEAR(rows.set.param[0][i], whole.param[0][i], 1e-6) << n << " at " << i;
    }
  }
}

TEST(TamRows, every_row_follows_the_closed_form) {
  Rows rows(9, 100);
  const TAMGroup group{.lr = 0.01};
  for (Index t = 1; t <= 100; ++t) {
    for (Index i = 0; i < 900; ++i) rows.set.grad(0)[i] = static_cast<float>(1 + i / 100);
    rows.step(group);
    if (t != 1 && t != 2 && t != 3 && t != 10 && t != 100) continue;
    const double td = static_cast<double>(t);
    const double expected =
        10 * (1 + 1e-8) * (1 - std::pow(0.9, td)) - 0.5 * td * std::pow(0.9, td - 1);
    for (Index row = 0; row < 9; ++row) {
      const auto at = static_cast<std::size_t>(row * 100 + 7);
      EXPECT_NEAR(rows.set.momentum[0][at] / static_cast<double>(1 + row) / expected, 1, 1e-6) << t;
    }
  }
}

TEST(TamRows, permuting_rows_permutes_results_bit_by_bit) {
  const Index count = 40, length = 1003;
  Rows straight(count, length, true), turned(count, length, true);
  const auto reverse_rows = [&](std::span<float> values) {
    std::ranges::reverse(values);
    for (Index r = 0; r < count; ++r) std::ranges::reverse(values.subspan(r * length, length));
  };
  reverse_rows(turned.set.values(turned.set.param, 0));
  ThreadPool pool(3);
  for (Index t = 0; t < 5; ++t) {
    straight.set.set_step(t);
    std::vector<float> grad(straight.set.grad(0).begin(), straight.set.grad(0).end());
    reverse_rows(grad);
    turned.set.view_of(Slot::Grad, 0).data = grad.data();
    straight.step({.lr = 0.01}, {.clip_norm = 3}, pool);
    turned.step({.lr = 0.01}, {.clip_norm = 3}, serial_executor());
  }
  reverse_rows(turned.set.values(turned.set.param, 0));
  std::ranges::reverse(turned.s);
  EXPECT_TRUE(std::ranges::equal(turned.set.param[0], straight.set.param[0]));
  EXPECT_EQ(turned.s, straight.s);
}

TEST(TamRows, a_step_that_is_skipped_or_fails_its_check_leaves_every_s) {
  for (const bool checked : {false, true}) {
    Rows rows(10, 70);
    rows.step({});
    const auto s = rows.s;
    const auto before = rows.set.snapshot();
    rows.set.grad(0)[333] = test::kInfinity;
    const StepReport report = rows.step({}, {.checked = checked, .skip_nonfinite = !checked});
    EXPECT_FALSE(report.stepped);
    EXPECT_EQ(rows.s, s);
    EXPECT_TRUE(same_bits(rows.set.snapshot(), before));
  }
}

TEST(TamRows, a_checked_step_has_the_bits_of_a_plain_one) {
  Rows plain(33, 1000), checked(33, 1000);
  for (Index t = 0; t < 5; ++t) {
    plain.set.set_step(t);
    checked.set.set_step(t);
    plain.step({.lr = 0.01});
    checked.step({.lr = 0.01}, {.checked = true});
  }
  EXPECT_EQ(plain.s, checked.s);
  EXPECT_TRUE(same_bits(plain.set.snapshot(), checked.set.snapshot()));
}

// Steps one [rows, columns] tensor element by element.
struct Elements {
  Elements(Index rows, Index columns) : set({rows * columns}, {.extra = true}), width(columns) {}
  void step(const TAMGroup& group, const StepControl& control = {}) {
    const TAMMethod method{.scope = TAMScope::Element, .row_length = width};
    double unused = 0, *place = &unused;
    tam_step(set.plan(), {&group, 1}, {.of_tensor = {&method, 1}, .correlation = {&place, 1}},
             control, serial_executor());
  }
  TensorSet set;
  Index width;
};

TEST(TamElements, element_scope_on_equal_vectors_sums_to_one_per_column) {
  for (const Index columns : {1, 3, 16, 1030}) {
    const Index rows = 50;
    Elements run(rows, columns);
    std::ranges::copy(run.set.grad(0), run.set.momentum[0].begin());
    run.step({.decay_rate = 0});  // s = S
    for (Index c = 0; c < columns; ++c) {
      double sum = 0;
      for (Index r = 0; r < rows; ++r) sum += run.set.extra[0][r * columns + c];
      ASSERT_NEAR(sum, 1, 1e-5) << columns << " column " << c;
    }
  }
}

TEST(TamElements, match_the_formula_in_double) {
  const Index rows = 37, columns = 21, n = rows * columns;
  Elements run(rows, columns);
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.125, .maximize = true};
  std::vector<double> p(run.set.param[0].begin(), run.set.param[0].end()), m(n, 0.0), s(n, 0.0);
  for (Index t = 0; t < 30; ++t) {
    run.set.set_step(t);
    std::vector<double> g(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i) g[i] = -0.5 * run.set.grad(0)[i] + 0.125 * p[i];
    run.step(group, {.inv_scale = 0.5});
    for (Index c = 0; c < columns; ++c) {
      double mm = 0, gg = 0;
      for (Index i = c; i < n; i += columns) mm += m[i] * m[i], gg += g[i] * g[i];
      const double norms = std::max(std::sqrt(mm), 1e-8) * std::max(std::sqrt(gg), 1e-8);
      for (Index i = c; i < n; i += columns) {
        s[i] = 0.9 * s[i] + 0.1 * (m[i] * g[i] / norms);
        m[i] = 0.9 * m[i] + (1e-8 + (1 + s[i]) / 2) * g[i];
        p[i] -= 0.01 * m[i];
      }
    }
  }
  for (Index i = 0; i < n; ++i) {
    ASSERT_NEAR(run.set.extra[0][i], s[i], 2e-6);
    ASSERT_NEAR(run.set.param[0][i], p[i], 5e-6);
  }
}

TEST(TamLagged, uses_the_cosine_of_the_step_before) {
  for (const double clip : {0.0, 5.0}) {
    TensorSet set({50'000, 1000});
    const TAMGroup group{.lr = 0.01};
    const TAMMethod method{.scope = TAMScope::Tensor};
    std::vector<double> s(2, 0.0);
    for (Index t = 0; t < 20; ++t) {
      set.set_step(t);
      const std::vector<double> used = s;
      const std::vector<float> m = set.momentum[0], g(set.grad(0).begin(), set.grad(0).end());
      const StepReport report =
          tam_step(set.plan(), {&group, 1},
                   {.of_tensor = {&method, 1}, .correlation = {}, .values = s, .lagged = true},
                   {.clip_norm = clip}, serial_executor());
      for (Index i = 0; i < 50'000; i += 1777) {
        const double wanted = 0.9 * m[i] + (1e-8 + (1 + used[0]) / 2) * report.clip_coef * g[i];
        ASSERT_NEAR(set.momentum[0][i], wanted, 1e-6);
      }
      double mg = 0, mm = 0, gg = 0;
      for (std::size_t i = 0; i < 50'000; ++i)
        mg += m[i] * g[i], mm += m[i] * m[i], gg += g[i] * g[i];
      const double cosine = mm == 0 ? 0 : mg / (std::sqrt(mm) * std::sqrt(gg));
      ASSERT_NEAR(s[0], 0.9 * used[0] + 0.1 * cosine, 1e-5);
      // The coefficient is off by at most (1 - γ)/2 |S - s|.
      ASSERT_LE(std::abs(s[0] - used[0]) / 2, 0.1);
    }
  }
}

// The worst that can happen: gradients that agree for long, then turn round.
TEST(TamLagged, the_coefficient_is_never_off_by_more_than_a_tenth) {
  TensorSet set({300});
  const TAMGroup group{.lr = 0.01};
  const TAMMethod method{.scope = TAMScope::Tensor};
  double s = 0, worst = 0;
  for (Index t = 0; t < 400; ++t) {
    std::ranges::fill(set.grad(0), t / 200 % 2 == 0 ? 1.0f : -1.0f);
    const double used = s;
    tam_step(set.plan(), {&group, 1},
             {.of_tensor = {&method, 1}, .correlation = {}, .values = {&s, 1}, .lagged = true}, {},
             serial_executor());
    worst = std::max(worst, std::abs(s - used) / 2);
  }
  EXPECT_LE(worst, 0.1 + 1e-9);
  EXPECT_GT(worst, 0.099) << "the bound is reached";
}

TEST(TamFixedDamping, is_sgd_with_momentum_at_that_rate) {
  const TAMGroup group{.lr = 0.01, .eps = 0, .fixed_damping = 0.625};
  TensorSet set({3000});
  double s = 0.25;
  std::vector<double> p(set.param[0].begin(), set.param[0].end()), m(3000, 0.0);
  for (Index t = 0; t < 20; ++t) {
    set.set_step(t);
    tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    for (std::size_t i = 0; i < 3000; ++i) {
      m[i] = 0.9 * m[i] + 0.625 * set.grad(0)[i];
      p[i] -= 0.01 * m[i];
    }
  }
  EXPECT_EQ(s, 0.25) << "left alone";
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_NEAR(set.param[0][i], p[i], 2e-6);
}

// With both corrections and an average, a constant gradient moves as in Adam: by about the rate
// times d, which starts at 1/2 and tends to 1.
TEST(TamAdamForm, average_and_bias_correction_make_an_adam_like_step) {
  TensorSet set({64}, {.second_moment = true});
  const TAMGroup group{.lr = 1e-3, .average_momentum = true, .bias_correction = true};
  double s = 0;
  for (Index t = 1; t <= 400; ++t) {
    std::ranges::fill(set.param[0], 0.0f);
    std::ranges::fill(set.grad(0), 0.5f);
    tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    const double size = -set.param[0][3] / 1e-3;
    if (t == 1) {
      EXPECT_NEAR(size, 0.5, 1e-5);
    }
    ASSERT_LE(size, 1.0001);
  }
  EXPECT_NEAR(-set.param[0][3] / 1e-3, 1, 1e-4);
}

}  // namespace
}  // namespace hone::kernels
