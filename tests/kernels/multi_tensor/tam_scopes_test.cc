// SPDX-License-Identifier: Apache-2.0
// TAM by row and with a fixed damping.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
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
