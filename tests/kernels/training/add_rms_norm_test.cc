// SPDX-License-Identifier: Apache-2.0
// The norm and its gradient by their properties, and by differences of the formula in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hone/core/thread_pool.h"
#include "hone/kernels/training/train_ops.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::training {
namespace {

using test::kEpsilon;
using test::kNan;
using test::random_values;
using testing::HasSubstr;
using Values = std::vector<float>;

constexpr Index kDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 33, 160, 1000};

struct Normed {
  Values normed, inverse_rms;
};

Normed norm_of(const Values& x, const Values& weight, double eps = 1e-5) {
  const auto dim = static_cast<Index>(weight.size());
  const Index rows = static_cast<Index>(x.size()) / dim;
  Normed out{Values(x.size(), -1.0f), Values(static_cast<std::size_t>(rows), -1.0f)};
  add_rms_norm({.rows = rows,
                .dim = dim,
                .x = x.data(),
                .weight = weight.data(),
                .eps = eps,
                .normed = out.normed.data(),
                .inverse_rms = out.inverse_rms.data()},
               serial_executor());
  return out;
}

struct Gradient {
  Values by_x, by_weight;
};

Gradient gradient_of(const Values& x, const Values& weight, const Values& by_normed,
                     const float* carried = nullptr, double eps = 1e-5,
                     Executor& executor = serial_executor()) {
  const auto dim = static_cast<Index>(weight.size());
  const Values inverse = norm_of(x, weight, eps).inverse_rms;
  Gradient out{Values(x.size(), -1.0f), Values(weight.size(), -1.0f)};
  add_rms_norm_grad({.rows = static_cast<Index>(inverse.size()),
                     .dim = dim,
                     .sum = x.data(),
                     .weight = weight.data(),
                     .inverse_rms = inverse.data(),
                     .grad_normed = by_normed.data(),
                     .grad_sum = carried,
                     .grad_x = out.by_x.data(),
                     .grad_weight = out.by_weight.data()},
                    executor);
  return out;
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

TEST(AddRmsNormForm, constant_rows_become_their_sign_times_the_weight) {
  for (const Index dim : kDims) {
    const Values weight = random_values(dim, 1);
    // One f32 sum of `dim` squares, then a division, a root and two products.
    const double tolerance = (std::sqrt(static_cast<double>(dim)) + 4) * kEpsilon;
    for (const float height : {1.0f, -1.0f, 1e-4f, 1e15f}) {
      const Normed out = norm_of(Values(weight.size(), height), weight, 1e-30);
      EXPECT_NEAR(out.inverse_rms[0] * std::abs(height), 1, tolerance);
      for (std::size_t i = 0; i < weight.size(); ++i)
        ASSERT_NEAR(out.normed[i], std::copysign(weight[i], weight[i] * height), tolerance);
    }
  }
}

TEST(AddRmsNormForm, scaling_the_input_by_a_power_of_two_keeps_every_bit) {
  for (const Index dim : kDims) {
    const Values weight = random_values(dim, 2), x = random_values(3 * dim, 3);
    Values scaled = x;
    for (float& value : scaled) value *= 4096;
    EXPECT_EQ(norm_of(x, weight, 0).normed, norm_of(scaled, weight, 0).normed) << dim;
  }
}

TEST(AddRmsNormForm, zero_rows_stay_zero_and_report_the_root_of_epsilon) {
  for (const Index dim : kDims) {
    const Values weight = random_values(dim, 4);
    const Normed out = norm_of(Values(weight.size(), 0.0f), weight, 0.0625);
    EXPECT_EQ(out.inverse_rms[0], 4);
    for (const float value : out.normed) ASSERT_EQ(value, 0);
  }
}

TEST(AddRmsNormForm, x_and_delta_play_the_same_part) {
  constexpr Index kRows = 4;
  for (const Index dim : kDims) {
    const Values a = random_values(kRows * dim, 5), b = random_values(kRows * dim, 6);
    const Values weight = random_values(dim, 7);
    std::vector<Values> sums, normed;
    for (const auto& [x, delta] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      Values sum(a.size()), out(a.size()), inverse(kRows);
      add_rms_norm({.rows = kRows,
                    .dim = dim,
                    .x = x->data(),
                    .delta = delta->data(),
                    .weight = weight.data(),
                    .sum = sum.data(),
                    .normed = out.data(),
                    .inverse_rms = inverse.data()},
                   serial_executor());
      sums.push_back(sum);
      normed.push_back(out);
    }
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(normed[0], normed[1]);
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(sums[0][i], a[i] + b[i]);
  }
}

TEST(AddRmsNormForm, a_value_that_is_not_finite_stays_in_its_row) {
  for (const Index dim : {1, 5, 16, 21}) {
    for (Index at = 0; at < dim; ++at) {
      Values x(static_cast<std::size_t>(3 * dim), 1.0f);
      x[static_cast<std::size_t>(dim + at)] = kNan;
      const Normed out = norm_of(x, Values(static_cast<std::size_t>(dim), 1.0f));
      for (Index i = 0; i < 3 * dim; ++i)
        ASSERT_EQ(std::isnan(out.normed[static_cast<std::size_t>(i)]), i / dim == 1) << i;
    }
  }
}

TEST(AddRmsNormGradient, is_the_derivative_of_the_formula) {
  constexpr double kStep = 1e-5;
  for (const Index dim : {1, 2, 7, 16, 33}) {
    const Values x = random_values(dim, 8), weight = random_values(dim, 9);
    const Values g = random_values(dim, 10);
    const Gradient got = gradient_of(x, weight, g, nullptr, 0.01);
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
TEST(AddRmsNormGradient, is_orthogonal_to_the_input_without_epsilon) {
  for (const Index dim : kDims) {
    const Values x = random_values(dim, 11), weight = random_values(dim, 12);
    const Gradient got = gradient_of(x, weight, random_values(dim, 13), nullptr, 0);
    double product = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      product += static_cast<double>(got.by_x[i]) * x[i];
      size += std::abs(static_cast<double>(got.by_x[i]) * x[i]);
    }
    EXPECT_LE(std::abs(product), 16 * kEpsilon * (size + 4)) << dim;
  }
}

TEST(AddRmsNormGradient, is_linear_in_what_comes_in) {
  const Index dim = 37, rows = 5;
  const Values x = random_values(rows * dim, 14), weight = random_values(dim, 15);
  const Values g = random_values(rows * dim, 16);
  Values eight = g;
  for (float& value : eight) value *= 8;
  const Gradient once = gradient_of(x, weight, g), more = gradient_of(x, weight, eight);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(more.by_x[i], 8 * once.by_x[i]);
  for (std::size_t i = 0; i < weight.size(); ++i)
    ASSERT_EQ(more.by_weight[i], 8 * once.by_weight[i]);
}

TEST(AddRmsNormGradient, adds_what_is_carried_and_may_overwrite_it) {
  for (const Index dim : {3, 16, 50}) {
    const Index rows = 4;
    const Values x = random_values(rows * dim, 17), weight = random_values(dim, 18);
    const Values g = random_values(rows * dim, 19), carried = random_values(rows * dim, 20);
    const Gradient plain = gradient_of(x, weight, g);
    const Gradient with = gradient_of(x, weight, g, carried.data());
    EXPECT_EQ(with.by_weight, plain.by_weight);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(with.by_x[i], plain.by_x[i] + carried[i], 8 * kEpsilon);
    Values in_place = carried, by_weight(weight.size());
    const Values inverse = norm_of(x, weight).inverse_rms;
    add_rms_norm_grad({.rows = rows,
                       .dim = dim,
                       .sum = x.data(),
                       .weight = weight.data(),
                       .inverse_rms = inverse.data(),
                       .grad_normed = g.data(),
                       .grad_sum = in_place.data(),
                       .grad_x = in_place.data(),
                       .grad_weight = by_weight.data()},
                      serial_executor());
    EXPECT_EQ(in_place, with.by_x);
  }
}

TEST(AddRmsNormGradient, weight_sums_have_the_same_bits_on_any_number_of_threads) {
  const Index dim = 65, rows = 3000;  // a dozen chunks
  const Values x = random_values(rows * dim, 21), weight = random_values(dim, 22);
  const Values g = random_values(rows * dim, 23);
  const Gradient one = gradient_of(x, weight, g);
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    const Gradient many = gradient_of(x, weight, g, nullptr, 1e-5, pool);
    EXPECT_EQ(many.by_weight, one.by_weight) << threads;
    EXPECT_EQ(many.by_x, one.by_x) << threads;
  }
}

TEST(AddRmsNormHostile, no_rows_give_no_output_and_a_zero_weight_gradient) {
  Values weight_grad(7, 9.0f);
  add_rms_norm({.rows = 0, .dim = 7}, serial_executor());
  add_rms_norm_grad({.rows = 0, .dim = 7, .grad_weight = weight_grad.data()}, serial_executor());
  EXPECT_EQ(weight_grad, Values(7, 0.0f));
}

TEST(AddRmsNormHostile, names_the_dimension_it_wanted) {
  EXPECT_THAT(test::error_of([] { add_rms_norm({.rows = 1, .dim = 0}, serial_executor()); }),
              HasSubstr("[add_rms_norm] expected dim > 0, got 0"));
  EXPECT_THAT(test::error_of([] { add_rms_norm_grad({.rows = 1, .dim = -3}, serial_executor()); }),
              HasSubstr("[add_rms_norm_grad] expected dim > 0, got -3"));
}

TEST(AddRmsNormHostile, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 5, 16, 17, 100}) {
    const test::GuardedFloats x(random_values(2 * dim, 1)), delta(random_values(2 * dim, 2));
    const test::GuardedFloats weight(random_values(dim, 3)), sum(Values(2 * dim, 0.0f));
    const test::GuardedFloats normed(Values(2 * dim, 0.0f)), inverse(Values(2, 0.0f));
    const test::GuardedFloats by_x(Values(2 * dim, 0.0f)), by_weight(Values(dim, 0.0f));
    add_rms_norm({.rows = 2,
                  .dim = dim,
                  .x = x.data(),
                  .delta = delta.data(),
                  .weight = weight.data(),
                  .sum = sum.data(),
                  .normed = normed.data(),
                  .inverse_rms = inverse.data()},
                 serial_executor());
    add_rms_norm_grad({.rows = 2,
                       .dim = dim,
                       .sum = sum.data(),
                       .weight = weight.data(),
                       .inverse_rms = inverse.data(),
                       .grad_normed = normed.data(),
                       .grad_sum = delta.data(),
                       .grad_x = by_x.data(),
                       .grad_weight = by_weight.data()},
                      serial_executor());
    EXPECT_GT(inverse.data()[1], 0);
  }
}

}  // namespace
}  // namespace hone::kernels::training
