// SPDX-License-Identifier: Apache-2.0
// The norm of a residual sum and its gradient by their references, by their properties, and by
// differences of the formula in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/norm/rms_norm.h"
#include "hone/kernels/norm/rms_norm_grad.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::kEpsilon;
using test::kNan;
using test::random_values;
using testing::HasSubstr;
using Values = std::vector<float>;

constexpr float kNoEpsilon = 1e-37f;  // too small to change a bit of the mean squares below
constexpr Index kDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 33, 160, 1000};

// The norm of x, or of x + delta where there is a delta, and its gradient.
struct Norm {
  Values x = {}, weight = {}, delta = {}, by_normed = {}, carried = {};
  float epsilon = 1e-5f;
  Values sum = {}, normed = {}, inverse_rms = {}, by_x = {}, by_weight = {};

  RmsNormArgs forward() {
    const auto cols = static_cast<Index>(weight.size());
    sum = normed = Values(x.size(), -1.0f);
    inverse_rms = Values(x.size() / weight.size(), -1.0f);
    return {.x = x.data(),
            .x_stride = cols,
            .delta = delta.empty() ? nullptr : delta.data(),
            .sum = sum.data(),
            .weight = weight.data(),
            .y = normed.data(),
            .y_stride = cols,
            .inverse_rms = inverse_rms.data(),
            .rows = static_cast<Index>(inverse_rms.size()),
            .cols = cols,
            .epsilon = epsilon};
  }
  RmsNormGradArgs backward() {
    by_x = Values(x.size(), -1.0f), by_weight = Values(weight.size(), -1.0f);
    return {.rows = static_cast<Index>(inverse_rms.size()),
            .cols = static_cast<Index>(weight.size()),
            .x = delta.empty() ? x.data() : sum.data(),
            .weight = weight.data(),
            .inverse_rms = inverse_rms.data(),
            .grad_y = by_normed.data(),
            .grad_sum = carried.empty() ? nullptr : carried.data(),
            .grad_x = by_x.data(),
            .grad_weight = by_weight.data()};
  }
};

Norm norm_of(Norm norm, Executor& executor = serial_executor()) {
  rms_norm(norm.forward(), executor);
  if (!norm.by_normed.empty()) rms_norm_grad(norm.backward(), executor);
  return norm;
}

// Inputs of a residual sum.
Norm random_sum(Index rows, Index cols) {
  return {.x = random_values(rows * cols, 1),
          .weight = random_values(cols, 3),
          .delta = random_values(rows * cols, 2),
          .by_normed = random_values(rows * cols, 4),
          .carried = random_values(rows * cols, 5)};
}

// Σ g · normed of one row, in double: what the gradients are the derivatives of.
double objective(const std::vector<double>& x, const std::vector<double>& weight, const Values& g,
                 double eps) {
  double squares = 0, sum = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  for (std::size_t i = 0; i < x.size(); ++i) sum += g[i] * x[i] * scale * weight[i];
  return sum;
}

TEST(ResidualRmsNorm, matches_the_reference_and_its_gradient_does) {
  for (const auto& [rows, cols] : test::kRowShapes) {
    const std::string what = std::to_string(rows) + "x" + std::to_string(cols);
    const Norm got = norm_of(random_sum(rows, cols));
    Norm want = random_sum(rows, cols);
    rms_norm_ref(want.forward());
    rms_norm_grad_ref(want.backward());
    const double sums = std::sqrt(static_cast<double>(cols)) + 8;
    test::expect_close(got.sum, want.sum, 0, what + " sum");
    test::expect_close(got.normed, want.normed, sums * kEpsilon, what + " normed");
    test::expect_close(got.inverse_rms, want.inverse_rms, sums * kEpsilon, what + " inverse rms");
    test::expect_close(got.by_x, want.by_x, 4 * sums * kEpsilon, what + " by x");
    test::expect_close(got.by_weight, want.by_weight,
                       (std::sqrt(static_cast<double>(rows)) + 8) * kEpsilon, what + " by weight");
  }
}

TEST(ResidualRmsNorm, without_delta_reads_x_as_the_sum) {
  Norm none = random_sum(3, 19), zero = none;
  none.delta.clear();
  zero.delta.assign(zero.x.size(), 0.0f);
  none = norm_of(none), zero = norm_of(zero);
  EXPECT_EQ(none.normed, zero.normed);
  EXPECT_EQ(none.by_x, zero.by_x);
  EXPECT_EQ(none.sum, Values(none.x.size(), -1.0f)) << "not written";
}

TEST(ResidualRmsNorm, the_sum_may_overwrite_either_addend) {
  const Norm want = norm_of(random_sum(5, 37));
  for (Values Norm::*addend : {&Norm::x, &Norm::delta}) {
    Norm norm = random_sum(5, 37);
    RmsNormArgs args = norm.forward();
    args.sum = (norm.*addend).data();
    rms_norm(args);
    EXPECT_EQ(norm.*addend, want.sum);
    EXPECT_EQ(norm.normed, want.normed);
  }
}

TEST(ResidualRmsNorm, has_the_same_bits_for_any_number_of_workers) {
  ThreadPool pool(3);
  const Norm one = norm_of(random_sum(700, 160)), three = norm_of(random_sum(700, 160), pool);
  EXPECT_EQ(one.normed, three.normed);
  EXPECT_EQ(one.by_x, three.by_x);
  EXPECT_EQ(one.by_weight, three.by_weight);
}

TEST(ResidualRmsNormForm, constant_rows_become_their_sign_times_the_weight) {
  for (const Index dim : kDims) {
    const Values weight = random_values(dim, 1);
    // One f32 sum of `dim` squares, then a division, a root and two products.
    const double tolerance = (std::sqrt(static_cast<double>(dim)) + 4) * kEpsilon;
    for (const float height : {1.0f, -1.0f, 1e-4f, 1e15f}) {
      const Norm out =
          norm_of({.x = Values(weight.size(), height), .weight = weight, .epsilon = 1e-30f});
      EXPECT_NEAR(out.inverse_rms[0] * std::abs(height), 1, tolerance);
      for (std::size_t i = 0; i < weight.size(); ++i)
        ASSERT_NEAR(out.normed[i], std::copysign(weight[i], weight[i] * height), tolerance);
    }
  }
}

TEST(ResidualRmsNormForm, scaling_the_input_by_a_power_of_two_keeps_every_bit) {
  for (const Index dim : kDims) {
    Norm norm{.x = random_values(3 * dim, 3), .weight = random_values(dim, 2)};
    norm.epsilon = kNoEpsilon;
    const Values normed = norm_of(norm).normed;
    for (float& value : norm.x) value *= 4096;
    EXPECT_EQ(norm_of(norm).normed, normed) << dim;
  }
}

TEST(ResidualRmsNormForm, zero_rows_stay_zero_and_report_the_root_of_epsilon) {
  for (const Index dim : kDims) {
    const Values weight = random_values(dim, 4), zeros(weight.size(), 0.0f);
    const Norm out = norm_of({.x = zeros, .weight = weight, .epsilon = 0.0625f});
    EXPECT_EQ(out.inverse_rms[0], 4);
    for (const float value : out.normed) ASSERT_EQ(value, 0);
  }
}

TEST(ResidualRmsNormForm, x_and_delta_play_the_same_part) {
  constexpr Index kRows = 4;
  for (const Index dim : kDims) {
    const Values a = random_values(kRows * dim, 5), b = random_values(kRows * dim, 6);
    const Values weight = random_values(dim, 7);
    const Norm ab = norm_of({.x = a, .weight = weight, .delta = b});
    const Norm ba = norm_of({.x = b, .weight = weight, .delta = a});
    EXPECT_EQ(ab.sum, ba.sum);
    EXPECT_EQ(ab.normed, ba.normed);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(ab.sum[i], a[i] + b[i]);
  }
}

TEST(ResidualRmsNormForm, a_value_that_is_not_finite_stays_in_its_row) {
  for (const Index dim : {1, 5, 16, 21}) {
    for (Index at = 0; at < dim; ++at) {
      Values x(static_cast<std::size_t>(3 * dim), 1.0f);
      x[static_cast<std::size_t>(dim + at)] = kNan;
      const Norm out = norm_of({.x = x, .weight = Values(static_cast<std::size_t>(dim), 1.0f)});
      for (Index i = 0; i < 3 * dim; ++i)
        ASSERT_EQ(std::isnan(out.normed[static_cast<std::size_t>(i)]), i / dim == 1) << i;
    }
  }
}

TEST(RmsNormGradient, is_the_derivative_of_the_formula) {
  constexpr double kStep = 1e-5;
  for (const Index dim : {1, 2, 7, 16, 33}) {
    const Values x = random_values(dim, 8), weight = random_values(dim, 9);
    const Values g = random_values(dim, 10);
    const Norm got = norm_of({.x = x, .weight = weight, .by_normed = g, .epsilon = 0.01f});
    const std::vector<double> xs(x.begin(), x.end()), ws(weight.begin(), weight.end());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto slope = [&](bool by_weight) {
        auto up = by_weight ? ws : xs, down = up;
        up[i] += kStep;
        down[i] -= kStep;
        const double rise = by_weight ? objective(xs, up, g, 0.01) - objective(xs, down, g, 0.01)
                                      : objective(up, ws, g, 0.01) - objective(down, ws, g, 0.01);
        return rise / (2 * kStep);
      };
      ASSERT_NEAR(got.by_x[i], slope(false), 3e-6) << dim << " at " << i;
      ASSERT_NEAR(got.by_weight[i], slope(true), 3e-6) << dim << " at " << i;
    }
  }
}

// The norm ignores the length of its input, so no gradient points along it.
TEST(RmsNormGradient, is_orthogonal_to_the_input_without_epsilon) {
  for (const Index dim : kDims) {
    const Norm got = norm_of({.x = random_values(dim, 11),
                              .weight = random_values(dim, 12),
                              .by_normed = random_values(dim, 13),
                              .epsilon = kNoEpsilon});
    double product = 0, size = 0;
    for (std::size_t i = 0; i < got.x.size(); ++i) {
      product += static_cast<double>(got.by_x[i]) * got.x[i];
      size += std::abs(static_cast<double>(got.by_x[i]) * got.x[i]);
    }
    EXPECT_LE(std::abs(product), 16 * kEpsilon * (size + 4)) << dim;
  }
}

TEST(RmsNormGradient, is_linear_in_what_comes_in) {
  const Index dim = 37, rows = 5;
  const Norm once = norm_of({.x = random_values(rows * dim, 14),
                             .weight = random_values(dim, 15),
                             .by_normed = random_values(rows * dim, 16)});
  Norm more = once;
  for (float& value : more.by_normed) value *= 8;
  more = norm_of(more);
  for (std::size_t i = 0; i < once.x.size(); ++i) ASSERT_EQ(more.by_x[i], 8 * once.by_x[i]);
  for (std::size_t i = 0; i < once.weight.size(); ++i)
    ASSERT_EQ(more.by_weight[i], 8 * once.by_weight[i]);
}

TEST(RmsNormGradient, adds_what_is_carried_and_may_overwrite_it) {
  for (const Index dim : {3, 16, 50}) {
    const Index rows = 4;
    const Norm plain = norm_of({.x = random_values(rows * dim, 17),
                                .weight = random_values(dim, 18),
                                .by_normed = random_values(rows * dim, 19)});
    Norm with = plain;
    with.carried = random_values(rows * dim, 20);
    with = norm_of(with);
    EXPECT_EQ(with.by_weight, plain.by_weight);
    for (std::size_t i = 0; i < plain.x.size(); ++i)
      ASSERT_NEAR(with.by_x[i], plain.by_x[i] + with.carried[i], 8 * kEpsilon);
    Norm in_place = with;
    RmsNormGradArgs args = in_place.backward();
    args.grad_x = in_place.carried.data();
    rms_norm_grad(args);
    EXPECT_EQ(in_place.carried, with.by_x);
  }
}

TEST(RmsNormGradient, weight_sums_have_the_same_bits_on_any_number_of_threads) {
  const Index dim = 65, rows = 3000;  // a dozen chunks
  const Norm one = norm_of({.x = random_values(rows * dim, 21),
                            .weight = random_values(dim, 22),
                            .by_normed = random_values(rows * dim, 23)});
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    const Norm many = norm_of(one, pool);
    EXPECT_EQ(many.by_weight, one.by_weight) << threads;
    EXPECT_EQ(many.by_x, one.by_x) << threads;
  }
}

TEST(ResidualRmsNormHostile, no_rows_give_no_output_and_a_zero_weight_gradient) {
  Values weight_grad(7, 9.0f);
  rms_norm({.x_stride = 7, .y_stride = 7, .rows = 0, .cols = 7});
  rms_norm_grad({.rows = 0, .cols = 7, .grad_weight = weight_grad.data()});
  EXPECT_EQ(weight_grad, Values(7, 0.0f));
}

TEST(ResidualRmsNormHostile, names_the_columns_it_expected) {
  float inverse = 0;
  EXPECT_THAT(test::error_of([&] { rms_norm({.inverse_rms = &inverse, .rows = 1, .cols = 0}); }),
              HasSubstr("[rms_norm] expected cols > 0 for inverse_rms, got 0"));
  EXPECT_THAT(test::error_of([] { rms_norm_grad({.rows = 1, .cols = -3}); }),
              HasSubstr("[rms_norm_grad] expected cols > 0, got -3"));
  EXPECT_THAT(test::error_of([] { rms_norm_grad({.rows = -1, .cols = 3}); }),
              HasSubstr("[rms_norm_grad] expected rows >= 0, got -1"));
}

TEST(ResidualRmsNormHostile, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 5, 16, 17, 100}) {
    const test::GuardedFloats x(random_values(2 * dim, 1)), delta(random_values(2 * dim, 2));
    const test::GuardedFloats weight(random_values(dim, 3)), sum(Values(2 * dim, 0.0f));
    const test::GuardedFloats normed(Values(2 * dim, 0.0f)), inverse(Values(2, 0.0f));
    const test::GuardedFloats by_x(Values(2 * dim, 0.0f)), by_weight(Values(dim, 0.0f));
    rms_norm({.x = x.data(),
              .x_stride = dim,
              .delta = delta.data(),
              .sum = sum.data(),
              .weight = weight.data(),
              .y = normed.data(),
              .y_stride = dim,
              .inverse_rms = inverse.data(),
              .rows = 2,
              .cols = dim});
    rms_norm_grad({.rows = 2,
                   .cols = dim,
                   .x = sum.data(),
                   .weight = weight.data(),
                   .inverse_rms = inverse.data(),
                   .grad_y = normed.data(),
                   .grad_sum = delta.data(),
                   .grad_x = by_x.data(),
                   .grad_weight = by_weight.data()});
    EXPECT_GT(inverse.data()[1], 0);
  }
}

}  // namespace
}  // namespace hone::kernels
