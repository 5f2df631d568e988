// SPDX-License-Identifier: Apache-2.0
// Distances of covariances by values worked out by hand, by dense matrices in long double, by
// differences of those, and by properties.
#include "hone/kernels/paco/cov_metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/paco/cov_oracle.h"

namespace hone::kernels {
namespace {

using oracle::covariance;
using oracle::kMetrics;
using oracle::Matrix;
using oracle::matrix_of;
using oracle::Metric;
using oracle::random_doubles;
using oracle::Real;
using oracle::Values;
using oracle::weighted_sum;
using test::error_of;
using testing::HasSubstr;

// A batch with what comes out of it; with prototypes, the mean covariances are compared with them.
struct Batch {
  Index parts = 0, dim = 0;
  double epsilon = 0;
  Values z1 = {}, z2 = {};
  Values prototypes = {};
  std::vector<Index> label = {};
  bool diagonal = false;
  Values weight = {};  // of the distances in the gradient; empty: ones
  Values distance = {}, by_z1 = {}, by_z2 = {};

  Index images() const { return static_cast<Index>(z1.size()) / (parts * dim); }
  TwoViews views() const {
    return {.batch = images(),
            .parts = parts,
            .dim = dim,
            .z1 = z1.data(),
            .z2 = z2.data(),
            .epsilon = epsilon};
  }
  CovPrototypes compared() const {
    const Index each = diagonal ? dim : dim * dim;
    return {.classes = static_cast<Index>(prototypes.size()) / each,
            .matrices = prototypes.data(),
            .label = label.data(),
            .diagonal = diagonal};
  }
};

Batch measured(Metric metric, Batch batch, Executor& executor = serial_executor()) {
  using OfViews = void (*)(const TwoViews&, double*, Executor&);
  using OfViewsGrad = void (*)(const TwoViews&, const CovGrad&, Executor&);
  using OfMean = void (*)(const TwoViews&, const CovPrototypes&, double*, Executor&);
  using OfMeanGrad = void (*)(const TwoViews&, const CovPrototypes&, const CovGrad&, Executor&);
  constexpr OfViews kOfViews[] = {frobenius_sq, stein, log_euclidean_sq};
  constexpr OfViewsGrad kOfViewsGrad[] = {frobenius_sq_grad, stein_grad, log_euclidean_sq_grad};
  constexpr OfMean kOfMean[] = {frobenius_sq, stein, log_euclidean_sq};
  constexpr OfMeanGrad kOfMeanGrad[] = {frobenius_sq_grad, stein_grad, log_euclidean_sq_grad};
  const auto at = static_cast<std::size_t>(metric);
  const auto images = static_cast<std::size_t>(batch.images());
  if (batch.weight.empty()) batch.weight.assign(images, 1.0);
  batch.distance.assign(images, -9.0);
  batch.by_z1.assign(batch.z1.size(), -9.0);
  batch.by_z2.assign(batch.z2.size(), -9.0);
  const CovGrad grad{batch.weight.data(), batch.by_z1.data(), batch.by_z2.data()};
  if (batch.label.empty()) {
    kOfViews[at](batch.views(), batch.distance.data(), executor);
    kOfViewsGrad[at](batch.views(), grad, executor);
  } else {
    kOfMean[at](batch.views(), batch.compared(), batch.distance.data(), executor);
    kOfMeanGrad[at](batch.views(), batch.compared(), grad, executor);
  }
  return batch;
}

Batch random_batch(Index images, Index parts, Index dim, double epsilon) {
  return {.parts = parts,
          .dim = dim,
          .epsilon = epsilon,
          .z1 = random_doubles(images * parts * dim, 1),
          .z2 = random_doubles(images * parts * dim, 2)};
}

// Positive definite matrices, or positive diagonals, one for each image, in reverse.
Batch with_prototypes(Batch batch, bool diagonal) {
  const Index dim = batch.dim;
  batch.diagonal = diagonal;
  for (Index image = 0; image < batch.images(); ++image) {
    batch.label.insert(batch.label.begin(), image);
    Values b = random_doubles((dim + 1) * dim, 30 + static_cast<std::uint64_t>(image));
    const Matrix p = covariance({b.begin(), b.end()}, static_cast<std::size_t>(dim + 1), 0.2L);
    for (std::size_t i = 0; i < p.n; ++i) {
      for (std::size_t j = 0; j < p.n; ++j) {
        if (!diagonal || i == j) batch.prototypes.push_back(static_cast<double>(p(i, j)));
      }
    }
  }
  return batch;
}

Matrix diagonal_of(const Matrix& a) {
  Matrix out(a.n);
  for (std::size_t i = 0; i < a.n; ++i) out(i, i) = a(i, i);
  return out;
}

// The two matrices that an image compares, from its parts.
std::pair<Matrix, Matrix> compared(const Batch& batch, std::size_t image,
                                   const std::vector<Real>& z1, const std::vector<Real>& z2) {
  const auto parts = static_cast<std::size_t>(batch.parts);
  const auto dim = static_cast<std::size_t>(batch.dim);
  const Matrix one = covariance(z1, parts, batch.epsilon);
  const Matrix two = covariance(z2, parts, batch.epsilon);
  if (batch.label.empty()) return {one, two};
  const Matrix mean = weighted_sum(0.5L, one, 0.5L, two);
  const auto label = static_cast<std::size_t>(batch.label[image]);
  if (!batch.diagonal) return {mean, matrix_of(batch.prototypes.data() + label * dim * dim, dim)};
  Matrix p(dim);
  for (std::size_t i = 0; i < dim; ++i) p(i, i) = batch.prototypes[label * dim + i];
  return {diagonal_of(mean), p};
}

std::vector<Real> parts_of(const Batch& batch, const Values& z, std::size_t image) {
  const auto size = static_cast<Index>(z.size()) / batch.images();
  const auto begin = z.begin() + static_cast<Index>(image) * size;
  return {begin, begin + size};
}

void expect_dense_distances(const Batch& batch) {
  for (const Metric metric : kMetrics) {
    const Batch got = measured(metric, batch);
    for (std::size_t image = 0; image < got.distance.size(); ++image) {
      const auto [a, b] = compared(batch, image, parts_of(batch, batch.z1, image),
                                   parts_of(batch, batch.z2, image));
      EXPECT_NEAR(got.distance[image], static_cast<double>(distance_of(metric, a, b)),
                  1e-12 * scale_of(metric, a, b))
          << static_cast<int>(metric) << " parts " << batch.parts << " dim " << batch.dim;
    }
  }
}

// Central differences of the dense distance in long double: with a step of 1e-6 their errors are
// near 1e-12 of the third derivative.
void expect_dense_gradients(const Batch& batch) {
  constexpr Real kStep = 1e-6L;
  for (const Metric metric : kMetrics) {
    const Batch got = measured(metric, batch);
    for (std::size_t image = 0; image < got.distance.size(); ++image) {
      std::vector<Real> z[] = {parts_of(batch, batch.z1, image), parts_of(batch, batch.z2, image)};
      const auto distance = [&] {
        const auto [a, b] = compared(batch, image, z[0], z[1]);
        return distance_of(metric, a, b);
      };
      for (const int view : {0, 1}) {
        const Values& by_z = view == 0 ? got.by_z1 : got.by_z2;
        for (std::size_t i = 0; i < z[view].size(); ++i) {
          const Real middle = z[view][i];
          z[view][i] = middle + kStep;
          const Real up = distance();
          z[view][i] = middle - kStep;
          const Real down = distance();
          z[view][i] = middle;
          const auto want = static_cast<double>((up - down) / (2 * kStep) * got.weight[image]);
          ASSERT_NEAR(by_z[image * z[view].size() + i], want, 1e-9 * (1 + std::abs(want)))
              << static_cast<int>(metric) << " parts " << batch.parts << " view " << view;
        }
      }
    }
  }
}

void expect_all(const Values& values, double want) {
  for (const double value : values) ASSERT_EQ(value, want);
}

TEST(CovMetric, values_of_three_parts_by_hand) {
  // Σ_1 = [[4.25, 1], [1, 1.25]], Σ_2 = [[1.25, .5], [.5, 7.25]].
  const Batch batch{
      .parts = 3, .dim = 2, .epsilon = 0.25, .z1 = {1, 2, -1, 0, 3, 1}, .z2 = {0, 1, 2, 2, 1, -3}};
  EXPECT_NEAR(measured(Metric::Frobenius, batch).distance[0], 45.5, 1e-12);
  EXPECT_NEAR(measured(Metric::Stein, batch).distance[0], 0.590350353, 1e-9);
  EXPECT_NEAR(measured(Metric::LogEuclidean, batch).distance[0], 5.161161703, 1e-9);
}

TEST(CovMetric, values_of_crossed_pairs_by_hand) {
  // Σ_1 = diag(2 + ε, ε), Σ_2 = diag(ε, 2 + ε).
  const Batch batch{.parts = 2, .dim = 2, .epsilon = 1, .z1 = {1, 0, -1, 0}, .z2 = {0, 1, 0, -1}};
  EXPECT_NEAR(measured(Metric::Frobenius, batch).distance[0], 8, 1e-14);
  EXPECT_NEAR(measured(Metric::Stein, batch).distance[0], std::log(4.0 / 3), 1e-15);
  EXPECT_NEAR(measured(Metric::LogEuclidean, batch).distance[0], 2 * std::pow(std::log(3), 2),
              1e-14);
}

// One dimension: ‖Σ_1 - Σ_2‖² = 4 (a² - b²)² for parts ±a and ±b.
TEST(CovMetric, frobenius_of_one_dimension_by_hand) {
  const double a = 1.25, b = 0.5;
  const Batch got = measured(Metric::Frobenius,
                             {.parts = 2, .dim = 1, .epsilon = 0.1, .z1 = {a, -a}, .z2 = {b, -b}});
  EXPECT_NEAR(got.distance[0], 4 * std::pow(a * a - b * b, 2), 1e-14);
  EXPECT_NEAR(got.by_z1[0] - got.by_z1[1], 16 * a * (a * a - b * b), 1e-13);
  EXPECT_NEAR(got.by_z2[0] - got.by_z2[1], -16 * b * (a * a - b * b), 1e-13);
}

TEST(CovMetric, mean_against_the_identity_by_hand) {
  // Both images have mean covariance (1 + ε) I and view distance 8.
  Batch batch{.parts = 2,
              .dim = 2,
              .epsilon = 0.5,
              .z1 = {1, 0, -1, 0, 4, 0, 2, 0},
              .z2 = {0, 1, 0, -1, 3, 1, 3, -1}};
  const Values views = measured(Metric::Frobenius, batch).distance;
  batch.prototypes = {1, 0, 0, 1};
  batch.label = {0, 0};
  const Values means = measured(Metric::Frobenius, batch).distance;
  EXPECT_NEAR((views[0] + views[1]) / 2, 8, 1e-14);
  EXPECT_NEAR((views[0] + views[1]) / 2 + 0.05 * (means[0] + means[1]) / 2, 8.025, 1e-14);
  for (const bool diagonal : {false, true}) {
    batch.diagonal = diagonal;
    if (diagonal) batch.prototypes = {1, 1};
    EXPECT_NEAR(measured(Metric::Frobenius, batch).distance[1], 0.5, 1e-15);
    EXPECT_NEAR(measured(Metric::Stein, batch).distance[1],
                2 * (std::log(1.25) - std::log(1.5) / 2), 1e-15);
    EXPECT_NEAR(measured(Metric::LogEuclidean, batch).distance[1], 2 * std::pow(std::log(1.5), 2),
                1e-15);
  }
}

TEST(CovMetric, of_few_rows_equals_dense_matrices) {
  for (const Index parts : {1, 2, 3, 4, 6, 8}) {
    for (const Index dim : {1, 2, 3, 5, 8, 17, 33}) {
      for (const double epsilon : {1e-3, 0.02, 1.5})
        expect_dense_distances(random_batch(2, parts, dim, epsilon));
    }
  }
  expect_dense_distances(random_batch(1, 4, 64, 1e-2));
}

TEST(CovMetric, against_prototypes_equals_dense_matrices) {
  for (const bool diagonal : {false, true}) {
    for (const Index parts : {1, 2, 4, 8}) {
      for (const Index dim : {1, 2, 3, 8, 17})
        expect_dense_distances(with_prototypes(random_batch(3, parts, dim, 0.02), diagonal));
    }
    expect_dense_distances(with_prototypes(random_batch(1, 4, 64, 1e-2), diagonal));
  }
}

TEST(CovMetricGradient, is_the_derivative_of_the_dense_distance) {
  for (const Index parts : {1, 2, 3, 5}) {
    for (const Index dim : {1, 2, 4}) {
      Batch batch = random_batch(2, parts, dim, 0.3);
      batch.weight = {1, -2.5};
      expect_dense_gradients(batch);
      for (const bool diagonal : {false, true})
        expect_dense_gradients(with_prototypes(batch, diagonal));
    }
  }
  expect_dense_gradients(random_batch(1, 4, 6, 0.05));
}

// Equal eigenvalues, for which eigenvectors have no derivative.
TEST(CovMetricGradient, holds_where_eigenvalues_are_equal) {
  Batch batch{.parts = 3, .dim = 3, .epsilon = 0.5, .z1 = {}, .z2 = random_doubles(9, 3)};
  batch.z1 = {1, 0, 0, 0, 1, 0, 0, 0, 1};  // C of view 1 is ½ I
  expect_dense_gradients(batch);
  batch.z2 = {0, 1, 0, 0, 0, 1, 1, 0, 0};
  expect_dense_gradients(batch);
  expect_dense_gradients(with_prototypes(batch, false));
  batch.z1.assign(9, 0.25);  // all parts equal: C is zero
  batch.z2 = random_doubles(9, 4);
  expect_dense_gradients(batch);
}

// 4 / (parts - 1) (z_v - mean) (S_1 - S_2) and 2 / (parts - 1) (z_v - mean) (Σ̄ - P).
TEST(CovMetricGradient, of_frobenius_has_the_closed_form) {
  for (const Index parts : {2, 4, 8}) {
    const Index dim = 64;
    const Batch views = random_batch(1, parts, dim, 0.02), mean = with_prototypes(views, false);
    const Batch by_views = measured(Metric::Frobenius, views);
    const Batch by_mean = measured(Metric::Frobenius, mean);
    for (const Batch* got : {&by_views, &by_mean}) {
      const std::vector<Real> z1(views.z1.begin(), views.z1.end());
      const std::vector<Real> z2(views.z2.begin(), views.z2.end());
      const auto [a, b] = compared(*got, 0, z1, z2);
      const Matrix r = weighted_sum(1, a, -1, b);
      for (const int view : {0, 1}) {
        const std::vector<Real>& z = view == 0 ? z1 : z2;
        const Real factor =
            (got->label.empty() ? (view == 0 ? 4 : -4) : 2) / static_cast<Real>(parts - 1);
        std::vector<Real> mean_part(r.n);
        for (std::size_t i = 0; i < z.size(); ++i)
          mean_part[i % r.n] += z[i] / static_cast<Real>(parts);
        for (std::size_t i = 0; i < z.size(); ++i) {
          Real want = 0;
          for (std::size_t j = 0; j < r.n; ++j)
            want += factor * (z[i / r.n * r.n + j] - mean_part[j]) * r(j, i % r.n);
          ASSERT_NEAR((view == 0 ? got->by_z1 : got->by_z2)[i], static_cast<double>(want), 1e-12);
        }
      }
    }
  }
}

// Covariances ignore where the parts are, so gradients add up to nothing over the parts.
TEST(CovMetricGradient, adds_up_to_zero_over_the_parts) {
  const Index parts = 4, dim = 19;
  for (const Metric metric : kMetrics) {
    const Batch views = random_batch(1, parts, dim, 0.1);
    for (const Batch& batch :
         {views, with_prototypes(views, false), with_prototypes(views, true)}) {
      const Batch got = measured(metric, batch);
      for (const Values* by_z : {&got.by_z1, &got.by_z2}) {
        for (std::size_t i = 0; i < 19; ++i) {
          double sum = 0, size = 0;
          for (std::size_t k = 0; k < 4; ++k)
            sum += (*by_z)[k * 19 + i], size += std::abs((*by_z)[k * 19 + i]);
          ASSERT_LE(std::abs(sum), 1e-14 * (size + 1));
        }
      }
    }
  }
}

TEST(CovMetric, of_swapped_views_is_the_same) {
  const Batch batch = random_batch(3, 4, 21, 0.05);
  Batch swapped = batch;
  std::swap(swapped.z1, swapped.z2);
  for (const Metric metric : kMetrics) {
    const Batch one = measured(metric, batch), other = measured(metric, swapped);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(one.distance[i], other.distance[i], 1e-12);
    for (std::size_t i = 0; i < one.z1.size(); ++i)
      ASSERT_NEAR(one.by_z1[i], other.by_z2[i], 1e-11);
  }
}

TEST(CovMetric, of_the_same_parts_in_another_order_is_zero) {
  const std::size_t dim = 16;
  Batch batch = random_batch(1, 4, 16, 0.05);
  for (std::size_t i = 0; i < batch.z1.size(); ++i)
    batch.z2[i] = batch.z1[(i + dim) % batch.z1.size()];
  for (const Metric metric : kMetrics) {
    const Batch got = measured(metric, batch);
    EXPECT_GE(got.distance[0], 0);
    EXPECT_LE(got.distance[0], 1e-12);
    for (const double slope : got.by_z1) ASSERT_NEAR(slope, 0, 1e-12);
  }
}

TEST(CovMetric, of_one_view_with_itself_is_zero) {
  Batch batch = random_batch(2, 5, 12, 0.05);
  batch.z2 = batch.z1;
  for (const Metric metric : {Metric::Frobenius, Metric::LogEuclidean}) {
    const Batch got = measured(metric, batch);
    expect_all(got.distance, 0);
    expect_all(got.by_z1, 0);
    expect_all(got.by_z2, 0);
  }
  const Batch got = measured(Metric::Stein, batch);
  for (const double value : got.distance) EXPECT_LE(value, 1e-13);
  for (const double slope : got.by_z1) ASSERT_NEAR(slope, 0, 1e-13);
}

// More rows than dimensions, in another order, above an epsilon that is far below the rounding of
// the eigenvalues that should be zero.
TEST(CovMetric, is_never_taken_below_zero_by_rounding) {
  for (const double epsilon : {1e-18, 0.05, 1.0}) {
    Batch batch = random_batch(200, 8, 2, epsilon);
    for (std::size_t i = 0; i < batch.z1.size(); ++i)
      batch.z2[i] = batch.z1[i / 16 * 16 + (i + 6) % 16];
    for (const Metric metric : kMetrics) {
      const Batch got = measured(metric, batch);
      for (const double value : got.distance) ASSERT_TRUE(value >= 0 && std::isfinite(value));
      for (const double slope : got.by_z1) ASSERT_TRUE(std::isfinite(slope));
    }
  }
}

// Twice the parts and four times epsilon: four times the covariances, of which Stein and
// log-Euclidean distances know nothing. Powers of two keep every bit.
TEST(CovMetric, scales_with_the_parts_as_its_formula_does) {
  const Batch small = random_batch(2, 4, 10, 0.25);
  Batch large = small;
  large.epsilon *= 4;
  for (double& value : large.z1) value *= 2;
  for (double& value : large.z2) value *= 2;
  for (const Metric metric : kMetrics) {
    const Batch one = measured(metric, small), other = measured(metric, large);
    const double growth = metric == Metric::Frobenius ? 16 : 1;
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(other.distance[i], growth * one.distance[i]);
    for (std::size_t i = 0; i < one.z1.size(); ++i)
      ASSERT_EQ(other.by_z1[i], growth / 2 * one.by_z1[i]);
  }
}

TEST(CovMetric, of_single_parts_and_of_zeros_is_zero) {
  for (const Metric metric : kMetrics) {
    Batch zeros = random_batch(2, 4, 7, 0.1);
    zeros.z1.assign(zeros.z1.size(), 0.0);
    zeros.z2.assign(zeros.z2.size(), 0.0);
    for (const Batch& batch : {random_batch(3, 1, 5, 0.1), zeros}) {
      const Batch got = measured(metric, batch);
      expect_all(got.distance, 0);
      expect_all(got.by_z1, 0);
      expect_all(got.by_z2, 0);
    }
  }
}

TEST(CovMetric, of_single_parts_compares_epsilon_with_the_prototype) {
  const double epsilon = 0.25;
  Batch batch = random_batch(1, 1, 2, epsilon);
  batch.prototypes = {1, 0, 0, 1};
  batch.label = {0};
  const double want[] = {2 * std::pow(1 - epsilon, 2),
                         2 * (std::log((1 + epsilon) / 2) - std::log(epsilon) / 2),
                         2 * std::pow(std::log(epsilon), 2)};
  for (const Metric metric : kMetrics) {
    const Batch got = measured(metric, batch);
    EXPECT_NEAR(got.distance[0], want[static_cast<int>(metric)], 1e-14);
    expect_all(got.by_z1, 0);
  }
}

TEST(CovMetric, without_a_prototype_is_exactly_zero) {
  for (const bool diagonal : {false, true}) {
    const Batch with = with_prototypes(random_batch(3, 3, 6, 0.1), diagonal);
    Batch without = with;
    without.label[1] = -1;
    without.z1[1 * 18] = std::nan("");  // not looked at
    for (const Metric metric : kMetrics) {
      const Batch want = measured(metric, with), got = measured(metric, without);
      for (std::size_t i = 0; i < got.z1.size(); ++i)
        ASSERT_EQ(got.by_z1[i], i / 18 == 1 ? 0 : want.by_z1[i]);
      EXPECT_EQ(got.distance, (Values{want.distance[0], 0, want.distance[2]}));
    }
  }
}

TEST(CovMetric, has_the_same_bits_for_any_number_of_workers) {
  ThreadPool pool(3);
  for (const Batch& batch :
       {random_batch(60, 4, 64, 0.02), with_prototypes(random_batch(9, 4, 20, 0.02), false)}) {
    for (const Metric metric : kMetrics) {
      const Batch one = measured(metric, batch), three = measured(metric, batch, pool);
      EXPECT_EQ(one.distance, three.distance);
      EXPECT_EQ(one.by_z1, three.by_z1);
      EXPECT_EQ(one.by_z2, three.by_z2);
    }
  }
}

TEST(CovMetricHostile, parts_that_are_not_finite_stay_in_their_image) {
  for (const bool against : {false, true}) {
    Batch clean = random_batch(3, 4, 5, 0.1);
    if (against) clean = with_prototypes(clean, false);
    for (const double bad : {std::nan(""), HUGE_VAL, 1e200}) {
      Batch spoilt = clean;
      spoilt.z2[1 * 20 + 7] = bad;
      for (const Metric metric : kMetrics) {
        const Batch want = measured(metric, clean), got = measured(metric, spoilt);
        EXPECT_TRUE(std::isnan(got.distance[1]));
        EXPECT_EQ(got.distance[0], want.distance[0]);
        EXPECT_EQ(got.distance[2], want.distance[2]);
        for (std::size_t i = 0; i < want.by_z1.size(); ++i) {
          ASSERT_EQ(std::isnan(got.by_z1[i]), i / 20 == 1);
          ASSERT_EQ(std::isnan(got.by_z2[i]), i / 20 == 1);
        }
      }
    }
  }
}

TEST(CovMetricHostile, an_empty_batch_writes_nothing) {
  for (const Metric metric : kMetrics)
    EXPECT_EQ(measured(metric, {.parts = 4, .dim = 3, .epsilon = 1}).distance, Values());
}

TEST(CovMetricHostile, wrong_arguments_are_refused_by_name) {
  const TwoViews good{.batch = 1, .parts = 2, .dim = 2, .epsilon = 1};
  const auto spoilt = [&](const auto& spoil) {
    TwoViews views = good;
    spoil(views);
    return error_of([&] { stein(views, nullptr); });
  };
  EXPECT_THAT(spoilt([](auto& v) { v.batch = -1; }),
              HasSubstr("[stein] expected batch >= 0, got -1"));
  EXPECT_THAT(spoilt([](auto& v) { v.parts = 0; }), HasSubstr("[stein] expected parts > 0, got 0"));
  EXPECT_THAT(spoilt([](auto& v) { v.dim = -2; }), HasSubstr("[stein] expected dim > 0, got -2"));
  for (const double bad : {0.0, -1e-5, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(spoilt([=](auto& v) { v.epsilon = bad; }),
                HasSubstr("[stein] expected a finite epsilon > 0, got "));
    for (const Metric metric : kMetrics) {
      EXPECT_THAT(error_of([&] { measured(metric, random_batch(1, 2, 2, bad)); }),
                  HasSubstr("expected a finite epsilon > 0"));
    }
  }
}

TEST(CovMetricHostile, wrong_prototypes_are_refused_by_name) {
  Batch batch = with_prototypes(random_batch(2, 2, 3, 0.5), false);
  for (const Index bad : {-2, 2}) {
    Batch wrong = batch;
    wrong.label[1] = bad;
    for (const Metric metric : kMetrics) {
      EXPECT_THAT(
          error_of([&] { measured(metric, wrong); }),
          HasSubstr("expected labels in [-1, 2), got " + std::to_string(bad) + " for image 1"));
    }
  }
  for (const double bad : {-50.0, std::nan("")}) {
    for (const bool diagonal : {false, true}) {
      Batch wrong = with_prototypes(random_batch(2, 2, 3, 0.5), diagonal);
      wrong.prototypes[diagonal ? 5 : 9 + 8] = bad;
      EXPECT_THAT(error_of([&] { measured(Metric::Stein, wrong); }),
                  HasSubstr("[stein] Prototype 1 is not positive definite."));
      EXPECT_THAT(error_of([&] { measured(Metric::LogEuclidean, wrong); }),
                  HasSubstr("[log_euclidean_sq] Prototype 1 is not positive definite."));
      EXPECT_EQ(error_of([&] { measured(Metric::Frobenius, wrong); }), "no error");
    }
  }
}

}  // namespace
}  // namespace hone::kernels
