// SPDX-License-Identifier: Apache-2.0
// Mahalanobis distances in the ridge form by values computed by hand, by dense factorizations, by
// closed forms of special parts, and by properties of the metric.
#include "hone/kernels/paco/ridge_distance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/paco/geometry_support.h"

namespace hone::kernels {
namespace {

using test::DistanceGrads;
using test::Distances;
using test::distances_of;
using test::Doubles;
using test::factor_of;
using test::grads_of;
using test::kDoubleNan;
using test::Metric;
using test::normal_values;
using test::zeros;
using testing::HasSubstr;

struct Shape {
  Index batch, rows, rank, dim;
};

constexpr Shape kShapes[] = {{1, 1, 1, 1},  {2, 3, 2, 1},  {3, 2, 6, 4},   {2, 5, 1, 7},
                             {1, 4, 6, 15}, {2, 3, 6, 33}, {3, 8, 6, 64},  {2, 2, 14, 65},
                             {1, 3, 9, 9},  {1, 2, 0, 17}, {2, 1, 30, 128}};

std::string name_of(const Shape& shape) {
  return std::to_string(shape.batch) + "x" + std::to_string(shape.rows) + "x" +
         std::to_string(shape.rank) + "x" + std::to_string(shape.dim);
}

Metric random_metric(const Shape& shape, double delta, std::uint64_t seed,
                     Executor& executor = serial_executor()) {
  return {shape.batch,
          shape.rank,
          shape.dim,
          normal_values(shape.batch * shape.rank * shape.dim, seed, 0.5),
          Doubles(static_cast<std::size_t>(shape.batch), delta),
          executor};
}

Doubles random_x(const Shape& shape, std::uint64_t seed) {
  return normal_values(shape.batch * shape.rows * shape.dim, seed);
}

TEST(RidgeDistance, of_one_column_as_by_hand) {
  const Metric metric(1, 1, 2, {1, 0}, {1});
  const Distances got = distances_of(metric, {2, 3});
  EXPECT_DOUBLE_EQ(metric.logdet[0], std::log(2.0));
  EXPECT_DOUBLE_EQ(got.y[0], 1);
  EXPECT_DOUBLE_EQ(got.w[0], 1);
  EXPECT_DOUBLE_EQ(got.w[1], 3);
  EXPECT_DOUBLE_EQ(got.q[0], 11);
  EXPECT_NEAR(std::sqrt(got.q[0]), 3.3166248, 5e-8);
  const DistanceGrads grads = grads_of(metric, got, {1});
  EXPECT_DOUBLE_EQ(grads.x[0], 2);
  EXPECT_DOUBLE_EQ(grads.x[1], 6);
  EXPECT_DOUBLE_EQ(grads.factor[0], -2);
  EXPECT_DOUBLE_EQ(grads.factor[1], -6);
  EXPECT_DOUBLE_EQ(grads.delta[0], -10);
}

// Two views of two parts at right angles: Sigma = (1 + delta) I.
TEST(RidgeDistance, of_views_at_right_angles_is_euclidean) {
  const Doubles factor = factor_of(1, 2, {1, 0, -1, 0}, {0, 1, 0, -1});
  for (const double delta : {1e-6, 0.3, 1.0, 50.0}) {
    const Metric metric(1, 2, 2, factor, {delta});
    EXPECT_NEAR(std::sqrt(distances_of(metric, {1, -1}).q[0]), std::sqrt(2 / (1 + delta)), 1e-15);
    EXPECT_NEAR(metric.logdet[0], 2 * std::log1p(delta), 1e-14);
  }
}

// Parts that are eight unit vectors: Sigma is delta + 1/6 on what is left of them without their
// means and delta elsewhere, and distances tend to a limit that does not depend on the data.
TEST(RidgeDistance, of_unit_parts_saturates) {
  Doubles z1 = zeros(32), z2 = zeros(32);
  for (std::size_t k = 0; k < 4; ++k) z1[k * 9] = 1, z2[k * 9 + 4] = 1;
  const Doubles factor = factor_of(1, 4, z1, z2);
  const Doubles same_view{1, -1, 0, 0, 0, 0, 0, 0};
  const Doubles other_view{1, 0, 0, 0, -1, 0, 0, 0};
  const Doubles other_view_centered{.75, -.25, -.25, -.25, -.75, .25, .25, .25};
  const auto q = [&](const Doubles& x, double delta) {
    return distances_of(Metric(1, 6, 8, factor, {delta}), x).q[0];
  };
  EXPECT_NEAR(q(other_view_centered, 1), 1.2857143, 5e-8);
  EXPECT_NEAR(q(other_view_centered, .1), 5.625, 1e-13);
  EXPECT_NEAR(q(other_view_centered, .01), 8.4905660, 5e-8);
  EXPECT_NEAR(q(other_view_centered, 1e-4), 8.9946032, 5e-8);
  EXPECT_NEAR(q(other_view, .01), 58.4905660, 5e-8);
  EXPECT_NEAR(q(same_view, .01), 11.3207547, 5e-8);
  EXPECT_NEAR(q(same_view, 1e-9), 12, 1e-6);
  for (const double delta : {1e-8, .01, .3, 4.0}) {
    EXPECT_NEAR(q(other_view_centered, delta), 1.5 / (1.0 / 6 + delta), 1e-13);
    EXPECT_NEAR(q(other_view, delta) * delta, 1.5 * delta / (1.0 / 6 + delta) + .5, 1e-13);
    EXPECT_NEAR(q(same_view, delta), 2 / (1.0 / 6 + delta), 1e-13);
  }
}

TEST(RidgeDistance, matches_a_dense_factorization) {
  for (const Shape& shape : kShapes) {
    for (const double delta : {1.11e-3, 0.5, 100.0}) {
      const Metric metric = random_metric(shape, delta, 1);
      const Doubles x = random_x(shape, 2);
      const Distances got = distances_of(metric, x);
      Distances want;
      ridge_distance_ref(test::distance_args(metric, x, want));
      const std::string what = name_of(shape) + " delta " + std::to_string(delta);
      // The dense side is the less accurate one where x lies in the span of A.
      const double condition = shape.rank < shape.dim ? 1 : 1 / delta;
      for (std::size_t i = 0; i < want.q.size(); ++i)
        ASSERT_NEAR(got.q[i] / want.q[i], 1, 1e-12 * std::max(1.0, condition)) << what;
      test::expect_near(got.w, want.w, 1e-11 / std::min(delta, 1.0), what + " w");
      test::expect_near(got.y, want.y, 1e-11 / std::min(delta, 1.0), what + " y");
    }
  }
}

TEST(RidgeDistance, and_its_reference_match_elimination) {
  for (const Shape& shape : kShapes) {
    const Metric metric = random_metric(shape, 0.25, 3);
    const Doubles x = random_x(shape, 4);
    const Distances got = distances_of(metric, x);
    Distances reference;
    ridge_distance_ref(test::distance_args(metric, x, reference));
    for (Index row = 0; row < shape.batch * shape.rows; ++row) {
      const auto at = static_cast<std::size_t>(row), dim = static_cast<std::size_t>(shape.dim);
      const Doubles own(x.data() + at * dim, x.data() + (at + 1) * dim);
      double logdet = 0;
      const Doubles w = test::solve_dense(metric.sigma(row / shape.rows), own, &logdet);
      ASSERT_NEAR(got.q[at] / test::dot(own, w), 1, 1e-12) << name_of(shape);
      ASSERT_NEAR(reference.q[at] / test::dot(own, w), 1, 1e-12) << name_of(shape);
      ASSERT_NEAR(metric.logdet[static_cast<std::size_t>(row / shape.rows)], logdet, 1e-11)
          << name_of(shape);
    }
  }
}

TEST(RidgeGram, factors_the_gram_matrix) {
  for (const Shape& shape : kShapes) {
    const Metric metric = random_metric(shape, 0.125, 5);
    const auto rank = static_cast<std::size_t>(shape.rank);
    const auto dim = static_cast<std::size_t>(shape.dim);
    for (std::size_t image = 0; image < static_cast<std::size_t>(shape.batch); ++image) {
      const double* a = metric.factor.data() + image * rank * dim;
      const double* chol = metric.chol.data() + image * rank * rank;
      for (std::size_t i = 0; i < rank; ++i) {
        for (std::size_t j = 0; j < rank; ++j) {
          double gram = i == j ? 0.125 : 0, product = 0;
          for (std::size_t c = 0; c < dim; ++c) gram += a[i * dim + c] * a[j * dim + c];
          for (std::size_t k = 0; k < rank; ++k) product += chol[i * rank + k] * chol[j * rank + k];
          ASSERT_NEAR(product, gram, 1e-13 * static_cast<double>(dim)) << name_of(shape);
          if (j > i) {
            ASSERT_EQ(chol[i * rank + j], 0) << "above the diagonal";
          }
        }
      }
    }
  }
}

TEST(RidgeDistance, is_between_zero_and_the_euclidean_bound_and_falls_with_delta) {
  const Shape shape{4, 6, 6, 20};
  const Doubles x = random_x(shape, 6);
  Doubles before(24, test::kDoubleInfinity);
  for (const double delta : {1e-12, 1e-6, 1e-3, 0.1, 1.0, 1e3, 1e9}) {
    const Doubles q = distances_of(random_metric(shape, delta, 7), x).q;
    for (std::size_t i = 0; i < q.size(); ++i) {
      double square = 0;
      for (std::size_t c = 0; c < 20; ++c) square += x[i * 20 + c] * x[i * 20 + c];
      ASSERT_GE(q[i], 0);
      ASSERT_LE(q[i], square / delta * (1 + 1e-14));
      ASSERT_LT(q[i], before[i]);
    }
    before = q;
  }
}

// x = a of A = (a): q = |a|^2 / (delta + |a|^2), where the Woodbury form cancels completely.
TEST(RidgeDistance, keeps_its_precision_in_the_span_of_the_factor) {
  for (const double delta : {1e-14, 1e-10, 1e-5, 1.0}) {
    const Doubles a = normal_values(64, 8, 30);
    const double square = test::dot(a, a);
    const Distances got = distances_of(Metric(1, 1, 64, a, {delta}), a);
    EXPECT_NEAR(got.q[0], square / (delta + square), 1e-14) << delta;
  }
}

// The pivots of a Gram matrix without full rank are rounding alone.
TEST(RidgeGram, stands_factors_without_full_rank_of_any_size) {
  for (const double size : {1e-160, 1.0, 1e8, 1e140}) {
    Doubles factor = normal_values(6 * 9, 9, size);  // of which two rows span the others
    for (std::size_t row = 2; row < 6; ++row) {
      const double share = 1 / static_cast<double>(row);
      for (std::size_t c = 0; c < 9; ++c)
        factor[row * 9 + c] = share * factor[c] + (1 - share) * factor[9 + c];
    }
    const Metric metric(1, 6, 9, factor, {1e-5});
    for (const double value : metric.chol) ASSERT_TRUE(std::isfinite(value)) << size;
    ASSERT_TRUE(std::isfinite(metric.logdet[0])) << size;
    const double q = distances_of(metric, normal_values(9, 10)).q[0];
    ASSERT_TRUE(std::isfinite(q) && q >= 0) << size;
  }
}

TEST(RidgeDistance, without_columns_is_the_squared_norm_over_delta) {
  const Metric metric(2, 0, 3, {}, {0.5, 4});
  const Distances got = distances_of(metric, {1, 2, 3, 1, 0, 1});
  EXPECT_EQ(got.q, (Doubles{28, 0.5}));
  EXPECT_EQ(got.w, (Doubles{2, 4, 6, 0.25, 0, 0.25}));
  EXPECT_NEAR(metric.logdet[0], 3 * std::log(0.5), 1e-15);
  EXPECT_NEAR(metric.logdet[1], 3 * std::log(4.0), 1e-15);
  EXPECT_EQ(grads_of(metric, got, {1, 1}).delta, (Doubles{-56, -0.125}));
}

// With delta = share |A|^2 / dim, the distance between parts does not depend on their scale, so
// that its gradient with respect to all parts is orthogonal to them (Euler).
TEST(RidgeDistance, with_a_relative_delta_ignores_the_scale_of_the_parts) {
  constexpr Index kParts = 4, kDim = 16;
  constexpr double kShare = 0.7;
  const Doubles z1 = normal_values(kParts * kDim, 11), z2 = normal_values(kParts * kDim, 12);
  const auto metric_at = [&](double scale) {
    Doubles a = z1, b = z2;
    for (double& value : a) value *= scale;
    for (double& value : b) value *= scale;
    const Doubles factor = factor_of(1, kParts, a, b);
    return Metric(1, 6, kDim, factor, {kShare * test::dot(factor, factor) / kDim});
  };
  const auto x_at = [&](double scale) {
    Doubles x = zeros(kDim);
    for (std::size_t c = 0; c < kDim; ++c) x[c] = scale * (z1[kDim + c] - z2[2 * kDim + c]);
    return x;
  };
  const Metric metric = metric_at(1);
  const Distances at = distances_of(metric, x_at(1));
  EXPECT_NEAR(distances_of(metric_at(7), x_at(7)).q[0] / at.q[0], 1, 1e-12);

  DistanceGrads grads = grads_of(metric, at, {1});
  for (std::size_t i = 0; i < grads.factor.size(); ++i)
    grads.factor[i] += grads.delta[0] * kShare * 2 * metric.factor[i] / kDim;
  Doubles by_z1 = zeros(kParts * kDim), by_z2 = by_z1;
  part_factor_grad({.batch = 1,
                    .parts = kParts,
                    .dim = kDim,
                    .grad_factor = grads.factor.data(),
                    .grad_z1 = by_z1.data(),
                    .grad_z2 = by_z2.data()});
  for (std::size_t c = 0; c < kDim; ++c)
    by_z1[kDim + c] += grads.x[c], by_z2[2 * kDim + c] -= grads.x[c];
  double sizes = 0;
  for (std::size_t i = 0; i < z1.size(); ++i)
    sizes += std::abs(z1[i] * by_z1[i]) + std::abs(z2[i] * by_z2[i]);
  EXPECT_NEAR(test::dot(z1, by_z1) + test::dot(z2, by_z2), 0, 1e-10 * sizes);
}

// The metric share P + (1 - share) A A^T with P = L L^T is a ridge metric after whitening by L.
TEST(RidgeDistance, of_whitened_parts_is_that_of_a_pooled_metric) {
  constexpr Index kDim = 16, kRank = 6;
  Doubles lower = normal_values(kDim * kDim, 13, 0.3);
  for (std::size_t i = 0; i < kDim; ++i) {
    lower[i * kDim + i] = 1 + std::abs(lower[i * kDim + i]);
    for (std::size_t j = i + 1; j < kDim; ++j) lower[i * kDim + j] = 0;
  }
  const auto whiten = [&](Doubles rows) {
    for (std::size_t start = 0; start < rows.size(); start += kDim) {
      for (std::size_t i = 0; i < kDim; ++i) {
        double& value = rows[start + i];
        for (std::size_t k = 0; k < i; ++k) value -= lower[i * kDim + k] * rows[start + k];
        value /= lower[i * kDim + i];
      }
    }
    return rows;
  };
  const Doubles factor = normal_values(kRank * kDim, 14), x = normal_values(kDim, 15);
  for (const double share : {0.3, 0.9, 1.0}) {
    Doubles dense = zeros(kDim * kDim), scaled = whiten(factor);
    for (std::size_t i = 0; i < kDim; ++i) {
      for (std::size_t j = 0; j < kDim; ++j) {
        double& sum = dense[i * kDim + j];
        for (std::size_t k = 0; k < kDim; ++k)
          sum += share * lower[i * kDim + k] * lower[j * kDim + k];
        for (std::size_t r = 0; r < kRank; ++r)
          sum += (1 - share) * factor[r * kDim + i] * factor[r * kDim + j];
      }
    }
    for (double& value : scaled) value *= std::sqrt(1 - share);
    const double got = distances_of(Metric(1, kRank, kDim, scaled, {share}), whiten(x)).q[0];
    EXPECT_NEAR(got / test::dot(x, test::solve_dense(dense, x)), 1, 1e-12) << share;
  }
}

TEST(RidgeDistanceGradient, is_the_derivative_of_the_distance) {
  const Shape shape{2, 3, 4, 7};
  const Metric metric = random_metric(shape, 0.4, 16);
  const Doubles x = random_x(shape, 17), grad_q = normal_values(6, 18);
  const DistanceGrads got = grads_of(metric, distances_of(metric, x), grad_q);
  const auto objective = [&](const Doubles& factor, const Doubles& delta, const Doubles& at) {
    return test::dot(distances_of(Metric(2, 4, 7, factor, delta), at).q, grad_q);
  };
  const auto slopes = [&](const Doubles& values, auto&& of) {
    Doubles result(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      constexpr double kStep = 1e-5;
      Doubles up = values, down = values;
      up[i] += kStep, down[i] -= kStep;
      result[i] = (of(up) - of(down)) / (2 * kStep);
    }
    return result;
  };
  test::expect_near(
      got.x,
      slopes(x, [&](const Doubles& at) { return objective(metric.factor, metric.delta, at); }),
      1e-8, "x");
  test::expect_near(
      got.factor,
      slopes(metric.factor,
             [&](const Doubles& factor) { return objective(factor, metric.delta, x); }),
      1e-8, "factor");
  test::expect_near(
      got.delta,
      slopes(metric.delta,
             [&](const Doubles& delta) { return objective(metric.factor, delta, x); }),
      1e-8, "delta");
}

// With w = Sigma^-1 x from elimination, d q / d Sigma = -w w^T: -2 (sum g w w^T) A for the factor
// and the trace for delta.
TEST(RidgeDistanceGradient, matches_the_dense_formula) {
  for (const Shape& shape : kShapes) {
    if (shape.rank >= shape.dim) continue;  // where the dense side is the less accurate one
    const Metric metric = random_metric(shape, 1.11e-3, 19);
    const Doubles x = random_x(shape, 20), grad_q = normal_values(shape.batch * shape.rows, 21);
    const auto dim = static_cast<std::size_t>(shape.dim);
    const auto rank = static_cast<std::size_t>(shape.rank);
    DistanceGrads want{zeros(static_cast<Index>(x.size())), Doubles(metric.factor.size()),
                       Doubles(metric.delta.size())};
    for (std::size_t row = 0; row < grad_q.size(); ++row) {
      const std::size_t image = row / static_cast<std::size_t>(shape.rows);
      const Doubles w = test::solve_dense(metric.sigma(static_cast<Index>(image)),
                                          {x.data() + row * dim, x.data() + (row + 1) * dim});
      for (std::size_t c = 0; c < dim; ++c) want.x[row * dim + c] = 2 * grad_q[row] * w[c];
      want.delta[image] -= grad_q[row] * test::dot(w, w);
      for (std::size_t i = 0; i < rank; ++i) {
        const std::size_t at = (image * rank + i) * dim;
        double along = 0;
        for (std::size_t c = 0; c < dim; ++c) along += w[c] * metric.factor[at + c];
        for (std::size_t c = 0; c < dim; ++c) want.factor[at + c] -= 2 * grad_q[row] * along * w[c];
      }
    }
    const DistanceGrads got = grads_of(metric, distances_of(metric, x), grad_q);
    test::expect_near(got.x, want.x, 1e-9, name_of(shape) + " x");
    test::expect_near(got.factor, want.factor, 1e-9, name_of(shape) + " factor");
    test::expect_near(got.delta, want.delta, 1e-9, name_of(shape) + " delta");
  }
}

TEST(RidgeDistance, computes_only_what_is_asked_for) {
  const Shape shape{2, 3, 6, 19};
  const Metric metric = random_metric(shape, 0.1, 22);
  const Doubles x = random_x(shape, 23), grad_q = normal_values(6, 24);
  const Distances full = distances_of(metric, x);
  Distances without;
  RidgeDistanceArgs args = test::distance_args(metric, x, without);
  args.w = nullptr;
  ridge_distance(args);
  EXPECT_EQ(without.q, full.q);
  EXPECT_EQ(without.y, full.y);
  EXPECT_EQ(without.w, Doubles(without.w.size(), 0.0)) << "not written";

  const DistanceGrads all = grads_of(metric, full, grad_q);
  for (const int only : {0, 1, 2}) {
    DistanceGrads got{Doubles(all.x.size()), Doubles(all.factor.size()), Doubles(2)};
    ridge_distance_grad({.batch = 2,
                         .rows = 3,
                         .rank = 6,
                         .dim = 19,
                         .y = full.y.data(),
                         .w = full.w.data(),
                         .grad_q = grad_q.data(),
                         .grad_x = only == 0 ? got.x.data() : nullptr,
                         .grad_factor = only == 1 ? got.factor.data() : nullptr,
                         .grad_delta = only == 2 ? got.delta.data() : nullptr});
    EXPECT_EQ(got.x == all.x, only == 0);
    EXPECT_EQ(got.factor == all.factor, only == 1);
    EXPECT_EQ(got.delta == all.delta, only == 2);
  }
}

TEST(RidgeDistance, of_a_row_does_not_depend_on_other_rows) {
  const Shape shape{1, 9, 6, 21};
  const Metric metric = random_metric(shape, 0.1, 25);
  const Doubles x = random_x(shape, 26);
  const Distances all = distances_of(metric, x);
  for (std::size_t row = 0; row < 9; ++row) {
    const Distances one = distances_of(metric, {x.data() + row * 21, x.data() + (row + 1) * 21});
    EXPECT_EQ(one.q[0], all.q[row]);
  }
}

TEST(RidgeDistance, has_the_same_bits_for_any_number_of_workers) {
  const Shape shape{300, 8, 6, 64};
  ThreadPool pool(7);
  const Metric one = random_metric(shape, 0.1, 27), seven = random_metric(shape, 0.1, 27, pool);
  EXPECT_EQ(seven.chol, one.chol);
  EXPECT_EQ(seven.logdet, one.logdet);
  const Doubles x = random_x(shape, 28), grad_q = normal_values(2400, 29);
  const Distances at = distances_of(one, x), same = distances_of(one, x, pool);
  EXPECT_EQ(same.q, at.q);
  EXPECT_EQ(same.w, at.w);
  EXPECT_EQ(same.y, at.y);
  const DistanceGrads grads = grads_of(one, at, grad_q), others = grads_of(one, at, grad_q, pool);
  EXPECT_EQ(others.x, grads.x);
  EXPECT_EQ(others.factor, grads.factor);
  EXPECT_EQ(others.delta, grads.delta);
}

TEST(RidgeDistanceHostile, a_nan_stays_in_its_row_or_image) {
  const Shape shape{3, 2, 6, 13};
  Doubles x = random_x(shape, 30), factor = normal_values(3 * 6 * 13, 31);
  x[0] = kDoubleNan;                      // row 0 of image 0
  factor[(1 * 6 + 2) * 13] = kDoubleNan;  // image 1
  const Metric metric(3, 6, 13, factor, Doubles(3, 0.5));
  EXPECT_FALSE(std::isnan(metric.logdet[0]));
  EXPECT_TRUE(std::isnan(metric.logdet[1]));
  EXPECT_FALSE(std::isnan(metric.logdet[2]));
  const Distances got = distances_of(metric, x);
  const Doubles is_nan{1, 0, 1, 1, 0, 0};
  for (std::size_t row = 0; row < 6; ++row) EXPECT_EQ(std::isnan(got.q[row]), is_nan[row] == 1);
  const DistanceGrads grads = grads_of(metric, got, Doubles(6, 1.0));
  EXPECT_TRUE(std::isnan(grads.delta[0]) && std::isnan(grads.delta[1]));
  EXPECT_TRUE(std::isfinite(grads.delta[2]));
}

TEST(RidgeDistanceHostile, without_images_or_rows_gives_empty_sums) {
  const Metric none(0, 6, 8, {}, {});
  distances_of(none, {});
  const Metric metric = random_metric({2, 0, 6, 8}, 1, 32);
  const Distances empty = distances_of(metric, {});
  const DistanceGrads grads = grads_of(metric, empty, {});
  EXPECT_EQ(grads.factor, zeros(2 * 6 * 8));
  EXPECT_EQ(grads.delta, zeros(2));
}

TEST(RidgeDistanceHostile, names_the_argument_that_is_wrong) {
  const auto with_delta = [](double delta) {
    return test::error_of([&] { Metric(2, 1, 2, {1, 2, 3, 4}, {1, delta}); });
  };
  EXPECT_THAT(with_delta(0), HasSubstr("[ridge_gram] expected a positive, finite delta for image 1,"
                                       " got 0"));
  EXPECT_THAT(with_delta(-2), HasSubstr("delta for image 1, got -2"));
  EXPECT_THAT(with_delta(kDoubleNan), HasSubstr("delta for image 1, got nan"));
  EXPECT_THAT(with_delta(test::kDoubleInfinity), HasSubstr("delta for image 1, got inf"));
  const double delta = 0;
  EXPECT_THAT(test::error_of([&] { ridge_distance({.batch = 1, .dim = 2, .delta = &delta}); }),
              HasSubstr("[ridge_distance] expected a positive, finite delta for image 0, got 0"));
  EXPECT_THAT(test::error_of([] { ridge_gram({.batch = -1, .dim = 2}); }),
              HasSubstr("[ridge_gram] expected batch >= 0, got -1"));
  EXPECT_THAT(test::error_of([] { ridge_gram({.rank = -3, .dim = 2}); }),
              HasSubstr("[ridge_gram] expected rank >= 0, got -3"));
  EXPECT_THAT(test::error_of([] { ridge_distance({.rows = -1, .dim = 2}); }),
              HasSubstr("[ridge_distance] expected rows >= 0, got -1"));
  EXPECT_THAT(test::error_of([] { ridge_distance_grad({.dim = 0}); }),
              HasSubstr("[ridge_distance_grad] expected dim > 0, got 0"));
}

TEST(RidgeDistanceHostile, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 3, 8, 21}) {
    const Index batch = 2, rows = 2, rank = 3;
    const test::GuardedDoubles factor(normal_values(batch * rank * dim, 33)), delta({1, 2});
    const test::GuardedDoubles chol(zeros(batch * rank * rank)), logdet(zeros(batch));
    const test::GuardedDoubles x(normal_values(batch * rows * dim, 34)), q(zeros(batch * rows));
    const test::GuardedDoubles y(zeros(batch * rows * rank)), w(zeros(batch * rows * dim));
    const test::GuardedDoubles by_x(zeros(batch * rows * dim)), by_delta(zeros(batch));
    const test::GuardedDoubles by_factor(zeros(batch * rank * dim));
    ridge_gram({.batch = batch,
                .rank = rank,
                .dim = dim,
                .factor = factor.data(),
                .delta = delta.data(),
                .chol = chol.data(),
                .logdet = logdet.data()});
    ridge_distance({.batch = batch,
                    .rows = rows,
                    .rank = rank,
                    .dim = dim,
                    .factor = factor.data(),
                    .chol = chol.data(),
                    .delta = delta.data(),
                    .x = x.data(),
                    .y = y.data(),
                    .w = w.data(),
                    .q = q.data()});
    ridge_distance_grad({.batch = batch,
                         .rows = rows,
                         .rank = rank,
                         .dim = dim,
                         .y = y.data(),
                         .w = w.data(),
                         .grad_q = q.data(),
                         .grad_x = by_x.data(),
                         .grad_factor = by_factor.data(),
                         .grad_delta = by_delta.data()});
    EXPECT_LT(by_delta.data()[1], 0);
  }
}

}  // namespace
}  // namespace hone::kernels
