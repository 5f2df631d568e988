// SPDX-License-Identifier: Apache-2.0
// Values worked out by hand, dense matrices, and the operators' formulation as oracles.
#include "hone/train/paco/geometry.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "tests/support/error_of.h"
#include "tests/train/paco/dense_oracle.h"

namespace hone::paco {
namespace {

using hone::test::error_of;
using test::covariance;
using test::dense_metric;
using test::distance_sq;
using test::numbers;
using test::random;
using test::worst;
using testing::HasSubstr;
using torch::Tensor;

std::vector<MetricOptions> all_options() {
  return {{.delta = DeltaMode::Absolute, .floor = 0.02},
          {.delta = DeltaMode::Relative, .rho = 0.5},
          {.delta = DeltaMode::Relative, .floor = 100},
          {.delta = DeltaMode::Shrink, .floor = 1e-3, .rho = 0.3},
          {.pooled = 0.3},
          {.pooled = 1}};
}

TEST(RidgeDistance, of_one_column_is_that_worked_out_by_hand) {
  PartMetric metric;
  metric.factor = numbers({1, 0}, {1, 1, 2}).requires_grad_();
  metric.delta = numbers({1}, {1}).requires_grad_();
  metric.chol = numbers({std::sqrt(2.0)}, {1, 1, 1});
  const Tensor x = numbers({2, 3}, {1, 1, 2}).requires_grad_();
  const Tensor q = ridge_distance_sq(metric, x);
  EXPECT_NEAR(q.item<double>(), 11, 1e-14);
  EXPECT_NEAR(root_of(q).item<double>(), 3.3166247903554, 1e-13);
  q.sum().backward();
  EXPECT_LE(worst(x.grad(), numbers({2, 6}, {1, 1, 2})), 1e-14);
  EXPECT_LE(worst(metric.factor.grad(), numbers({-2, -6}, {1, 1, 2})), 1e-14);
  EXPECT_NEAR(metric.delta.grad().item<double>(), -10, 1e-13);
}

TEST(PartMetric, distances_and_their_gradients_are_those_of_dense_matrices) {
  at::manual_seed(3);
  for (const Index parts : {1, 2, 4}) {
    for (const MetricOptions& options : all_options()) {
      if (parts == 1 && options.pooled > 0) continue;  // no covariance to pool
      const Tensor z1 = random({3, parts, 6}).requires_grad_();
      const Tensor z2 = random({3, parts, 6}).requires_grad_();
      const Tensor mix = random({3, parts});
      const PartMetric metric = part_metric(z1, z2, options);
      const Tensor q = ridge_distance_sq(metric, metric.z1 - metric.z2.flip(0));
      (q * mix).sum().backward();
      const Tensor by_z1 = z1.grad().clone(), by_z2 = z2.grad().clone();
      z1.mutable_grad() = Tensor();
      z2.mutable_grad() = Tensor();
      const auto dense = dense_metric(z1, z2, options);
      Tensor total = at::zeros({}, at::kDouble);
      for (Index b = 0; b < 3; ++b) {
        for (Index k = 0; k < parts; ++k) {
          const Tensor want =
              distance_sq(dense.sigma[static_cast<std::size_t>(b)], z1[b][k] - z2[2 - b][k]);
          EXPECT_LE(worst(q[b][k], want), 1e-10) << parts << " " << b << " " << k;
          total = total + want * mix[b][k];
        }
      }
      total.backward();
      EXPECT_LE(worst(by_z1, z1.grad()), 1e-8) << parts;
      EXPECT_LE(worst(by_z2, z2.grad()), 1e-8) << parts;
    }
  }
}

TEST(PartMetric, of_operators_is_that_of_the_kernels) {
  at::manual_seed(4);
  for (const MetricOptions& options : all_options()) {
    Tensor grads[2][2], q[2];
    const Tensor start1 = random({5, 4, 64}), start2 = random({5, 4, 64});
    for (const bool operators : {false, true}) {
      const Tensor z1 = start1.clone().requires_grad_(), z2 = start2.clone().requires_grad_();
      const PartMetric metric =
          operators ? composed::part_metric(z1, z2, options) : part_metric(z1, z2, options);
      const Tensor x = metric.z1 - metric.z2;
      q[operators] =
          operators ? composed::ridge_distance_sq(metric, x) : ridge_distance_sq(metric, x);
      root_of(q[operators]).sum().backward();
      grads[operators][0] = z1.grad();
      grads[operators][1] = z2.grad();
    }
    EXPECT_LE(worst(q[0], q[1]), 1e-12);
    for (const int view : {0, 1}) EXPECT_LE(worst(grads[0][view], grads[1][view]), 1e-9);
  }
}

TEST(RidgeCoordinates, have_the_distances_of_the_metric) {
  at::manual_seed(7);
  for (const MetricOptions& options : all_options()) {
    for (const Index parts : {1, 4}) {
      if (parts == 1 && options.pooled > 0) continue;
      const Tensor z1 = random({3, parts, 9}).requires_grad_(), z2 = random({3, parts, 9});
      const PartMetric metric = part_metric(z1, z2, options);
      const Tensor e1 = ridge_coordinates(metric, metric.z1);
      const Tensor e2 = ridge_coordinates(metric, metric.z2);
      EXPECT_FALSE(e1.requires_grad());
      EXPECT_EQ(e1.size(2), 9 + 2 * (parts - 1));
      EXPECT_LE(worst(e1.square().sum(2), ridge_distance_sq(metric, metric.z1)), 1e-12);
      for (Index k = 0; k < parts; ++k) {
        const Tensor want = ridge_distance_sq(metric, metric.z1 - metric.z2.roll(k, 1));
        EXPECT_LE(worst((e1 - e2.roll(k, 1)).square().sum(2), want), 1e-11) << parts << k;
      }
      if (parts == 1) continue;
      EXPECT_LE(worst(composed::ridge_coordinates(metric, metric.z1), e1), 1e-11);
    }
  }
}

TEST(PartMetric, without_gradient_is_a_constant) {
  at::manual_seed(5);
  const Tensor z1 = random({2, 3, 5}).requires_grad_(), z2 = random({2, 3, 5}).requires_grad_();
  const PartMetric metric = part_metric(z1, z2, {.grad = false});
  EXPECT_FALSE(metric.factor.requires_grad());
  EXPECT_FALSE(metric.delta.requires_grad());
  ridge_distance_sq(metric, metric.z1 - metric.z2).sum().backward();
  const auto dense = dense_metric(z1.detach(), z2.detach(), {});
  const Tensor x = (z1 - z2).detach();
  for (Index b = 0; b < 2; ++b) {
    for (Index k = 0; k < 3; ++k) {
      const Tensor w =
          at::matmul(at::linalg_inv(dense.sigma[static_cast<std::size_t>(b)]), x[b][k]);
      EXPECT_LE(worst(z1.grad()[b][k], 2 * w), 1e-10);
      EXPECT_LE(worst(z2.grad()[b][k], -2 * w), 1e-10);
    }
  }
}

// The distances between parts of two views with equal means tend to constants, whatever the parts.
TEST(PartMetric, of_orthogonal_parts_saturates) {
  const Tensor basis = at::eye(8, at::kDouble);
  const Tensor z1 = basis.slice(0, 0, 4).unsqueeze(0), z2 = basis.slice(0, 4).unsqueeze(0);
  for (const double delta : {1.0, 0.1, 0.01, 1e-4}) {
    const PartMetric metric = part_metric(z1, z2, {.delta = DeltaMode::Absolute, .floor = delta});
    const Tensor c1 = z1 - z1.mean(1, true), c2 = z2 - z2.mean(1, true);
    const Tensor across = ridge_distance_sq(metric, c1 - c2);
    const Tensor within = ridge_distance_sq(metric, c1 - c1.roll(1, 1));
    EXPECT_NEAR(across[0][0].item<double>(), 1.5 / (1.0 / 6 + delta), 1e-9) << delta;
    EXPECT_NEAR(within[0][0].item<double>(), 2 / (1.0 / 6 + delta), 1e-9) << delta;
  }
}

TEST(RootOf, has_gradient_zero_at_zero) {
  const Tensor q = numbers({0, 4, 1e-40}, {3}).requires_grad_();
  const Tensor root = root_of(q);
  root.sum().backward();
  EXPECT_EQ(root[0].item<double>(), 0);
  EXPECT_EQ(root[1].item<double>(), 2);
  EXPECT_TRUE(q.grad().equal(numbers({0, 0.25, 0}, {3})));
}

const Tensor& views(int view) {  // 3 parts in 2 dimensions
  static const Tensor parts[2] = {numbers({1, 2, -1, 0, 3, 1}, {1, 3, 2}),
                                  numbers({0, 1, 2, 2, 1, -3}, {1, 3, 2})};
  return parts[view];
}

TEST(CovarianceDistance, takes_the_values_worked_out_by_hand) {
  const auto distance = [](SocMetric metric) {
    return covariance_distance(metric, views(0), views(1), 0.25).item<double>();
  };
  EXPECT_NEAR(distance(SocMetric::Frobenius), 45.5, 1e-12);
  EXPECT_NEAR(distance(SocMetric::Stein), 0.590350353, 1e-9);
  EXPECT_NEAR(distance(SocMetric::LogEuclidean), 5.161161703, 1e-9);
}

TEST(CovarianceDistance, and_its_gradient_are_those_of_dense_matrices) {
  at::manual_seed(6);
  const Tensor prototypes = at::stack({covariance(random({9, 5})), at::eye(5, at::kDouble)});
  const Tensor label = at::tensor({1, -1, 0}, at::kLong);
  for (const bool to_prototypes : {false, true}) {
    Tensor grads[2], value[2];
    const Tensor start1 = random({3, 4, 5}), start2 = random({3, 4, 5});
    for (const bool operators : {false, true}) {
      const Tensor z1 = start1.clone().requires_grad_(), z2 = start2.clone().requires_grad_();
      const auto metric = SocMetric::Frobenius;
      if (to_prototypes) {
        value[operators] =
            operators ? composed::frobenius_prototype_distance(z1, z2, 0.1, prototypes, label)
                      : prototype_distance(metric, z1, z2, 0.1, prototypes, label);
      } else {
        value[operators] = operators ? composed::frobenius_distance(z1, z2)
                                     : covariance_distance(metric, z1, z2, 0.1);
      }
      (value[operators] * numbers({1, 2, 3}, {3})).sum().backward();
      grads[operators] = at::cat({z1.grad(), z2.grad()});
    }
    for (Index b = 0; b < 3; ++b) {
      const Tensor one = covariance(start1[b]), two = covariance(start2[b]);
      const Tensor mean = (one + two) / 2 + 0.1 * at::eye(5, at::kDouble);
      const Index own = label[b].item<Index>();
      const Tensor gap = !to_prototypes ? one - two
                         : own < 0      ? at::zeros_like(one)
                                        : mean - prototypes[own];
      EXPECT_NEAR(value[0][b].item<double>(), gap.square().sum().item<double>(), 1e-10);
    }
    EXPECT_LE(worst(value[0], value[1]), 1e-12);
    EXPECT_LE(worst(grads[0], grads[1]), 1e-10);
  }
}

TEST(PartGeometry, takes_fp32_parts_and_ignores_autocast) {
  at::manual_seed(8);
  const Tensor z1 = at::randn({2, 4, 16}).requires_grad_(), z2 = at::randn({2, 4, 16});
  const auto run = [&] {
    const PartMetric metric = part_metric(z1, z2, {});
    return ridge_distance_sq(metric, metric.z1 - metric.z2);
  };
  const Tensor plain = run();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor cast = run();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(plain.equal(cast));
  EXPECT_EQ(plain.scalar_type(), at::kDouble);
  plain.sum().backward();
  EXPECT_EQ(z1.grad().scalar_type(), at::kFloat);
}

TEST(PartGeometry, refuses_by_name) {
  const Tensor z = random({2, 3, 4});
  const auto refused = [&](const Tensor& a, const Tensor& b, const MetricOptions& options = {}) {
    return error_of([&] { part_metric(a, b, options); });
  };
  EXPECT_THAT(refused(z, Tensor()), HasSubstr("expected two views of parts"));
  EXPECT_THAT(refused(z, random({2, 2, 4})), HasSubstr("expected two views of parts"));
  EXPECT_THAT(refused(z, z.to(at::kFloat)), HasSubstr("parts of one floating type"));
  EXPECT_THAT(refused(z, z, {.floor = 0}), HasSubstr("a finite floor above 0, got 0"));
  EXPECT_THAT(refused(z, z, {.rho = -1}), HasSubstr("a finite rho of at least 0"));
  EXPECT_THAT(refused(z, z, {.delta = DeltaMode::Shrink, .rho = 1}), HasSubstr("rho in [0, 1)"));
  EXPECT_THAT(refused(z, z, {.pooled = 1.5}), HasSubstr("pooled in [0, 1]"));
  const Tensor one = random({2, 1, 4});
  EXPECT_THAT(refused(one, one, {.pooled = 0.5}),
              HasSubstr("at least two parts for pooled metrics, got 1"));
  const PartMetric metric = part_metric(z, z, {});
  EXPECT_THAT(error_of([&] {
                ridge_distance_sq(metric, random({2, 3, 5}));
              }),
              HasSubstr("[2, rows, 4]"));
  EXPECT_THAT(error_of([&] {
                ridge_coordinates(metric, random({2, 3, 5}));
              }),
              HasSubstr("[ridge_coordinates] expected [2, rows, 4]"));
}

TEST(PartGeometry, has_no_second_derivative) {
  const Tensor z1 = random({2, 3, 4}).requires_grad_(), z2 = random({2, 3, 4});
  const PartMetric metric = part_metric(z1, z2, {});
  const Tensor q = ridge_distance_sq(metric, metric.z1 - metric.z2).sum();
  EXPECT_THAT(error_of([&] {
                torch::autograd::grad({q}, {z1}, {}, /*retain_graph=*/true,
                                      /*create_graph=*/true);
              }),
              HasSubstr("first derivatives"));
}

}  // namespace
}  // namespace hone::paco
