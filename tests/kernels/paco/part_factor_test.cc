// SPDX-License-Identifier: Apache-2.0
// The factor of the parts' covariance by the Helmert matrix's known rows, by the covariance that it
// must reproduce, and its adjoint by the inner products that define it.
#include "hone/kernels/paco/part_factor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/paco/geometry_support.h"

namespace hone::kernels {
namespace {

using test::Doubles;
using test::factor_of;
using test::kDoubleNan;
using test::normal_values;
using test::whole_values;
using test::zeros;
using testing::HasSubstr;

struct PartGrads {
  Doubles z1, z2;
};

PartGrads part_grads(Index batch, Index parts, Index dim, const Doubles& grad, Doubles before,
                     Executor& executor = serial_executor()) {
  PartGrads out{before, before};
  part_factor_grad({.batch = batch,
                    .parts = parts,
                    .dim = dim,
                    .grad_factor = grad.data(),
                    .grad_z1 = out.z1.data(),
                    .grad_z2 = out.z2.data()},
                   executor);
  return out;
}

// The mean over the views of the parts' covariances, from centered parts.
Doubles mean_covariance(Index parts, Index dim, const Doubles& z1, const Doubles& z2) {
  Doubles sum = zeros(dim * dim);
  for (const Doubles* z : {&z1, &z2}) {
    for (Index i = 0; i < dim; ++i) {
      for (Index j = 0; j < dim; ++j) {
        double mean_i = 0, mean_j = 0, product = 0;
        const auto at = [&](Index k, Index c) {
          return (*z)[static_cast<std::size_t>(k * dim + c)];
        };
        for (Index k = 0; k < parts; ++k) mean_i += at(k, i), mean_j += at(k, j);
        mean_i /= static_cast<double>(parts), mean_j /= static_cast<double>(parts);
        for (Index k = 0; k < parts; ++k) product += (at(k, i) - mean_i) * (at(k, j) - mean_j);
        sum[static_cast<std::size_t>(i * dim + j)] += product / static_cast<double>(parts - 1) / 2;
      }
    }
  }
  return sum;
}

// A A^T of factor = A^T [rank, dim].
Doubles outer_of(Index rank, Index dim, const Doubles& factor) {
  Doubles sum = zeros(dim * dim);
  for (Index r = 0; r < rank; ++r)
    for (Index i = 0; i < dim; ++i)
      for (Index j = 0; j < dim; ++j)
        sum[static_cast<std::size_t>(i * dim + j)] +=
            factor[static_cast<std::size_t>(r * dim + i)] *
            factor[static_cast<std::size_t>(r * dim + j)];
  return sum;
}

TEST(PartFactor, unit_parts_show_the_rows_of_the_helmert_matrix) {
  Doubles unit = zeros(16);
  for (std::size_t k = 0; k < 4; ++k) unit[k * 5] = 1;
  const Doubles factor = factor_of(1, 4, unit, zeros(16));
  const double a = std::sqrt(2.0), b = std::sqrt(6.0), c = std::sqrt(12.0), over = std::sqrt(6.0);
  const Doubles want{1 / a, -1 / a, 0, 0, 1 / b, 1 / b, -2 / b, 0, 1 / c, 1 / c, 1 / c, -3 / c};
  for (std::size_t i = 0; i < 12; ++i) EXPECT_NEAR(factor[i], want[i] / over, 2e-16) << i;
  for (std::size_t i = 12; i < 24; ++i) EXPECT_EQ(factor[i], 0) << i;
  EXPECT_EQ(factor_of(1, 4, zeros(16), unit)[12], factor[0]) << "view 2 fills the second half";
}

TEST(PartFactor, two_parts_give_half_their_difference) {
  const Doubles factor = factor_of(1, 2, {1, 0, -1, 0}, {0, 1, 0, -1});
  EXPECT_EQ(factor, (Doubles{1, 0, 0, 1}));
}

TEST(PartFactor, reproduces_the_covariance_of_centered_parts) {
  for (const Index parts : {2, 3, 4, 6, 8}) {
    for (const Index dim : {1, 2, 7, 64}) {
      const Doubles z1 = normal_values(parts * dim, 1), z2 = normal_values(parts * dim, 2);
      const Doubles got = outer_of(2 * (parts - 1), dim, factor_of(1, parts, z1, z2));
      test::expect_near(got, mean_covariance(parts, dim, z1, z2), 1e-14,
                        std::to_string(parts) + "x" + std::to_string(dim));
    }
  }
}

// Whole numbers: the shifted parts are exact, so any difference is the sums' own rounding.
TEST(PartFactor, a_common_shift_changes_no_bit) {
  const Doubles z1 = whole_values(5 * 9, 3, 100), z2 = whole_values(5 * 9, 4, 100);
  Doubles far1 = z1, far2 = z2;
  for (double& value : far1) value += 1e12;
  for (double& value : far2) value -= 3e14;
  EXPECT_EQ(factor_of(1, 5, far1, far2), factor_of(1, 5, z1, z2));
}

TEST(PartFactor, of_one_part_is_empty_and_its_gradient_adds_nothing) {
  EXPECT_TRUE(factor_of(3, 1, normal_values(15, 5), normal_values(15, 6)).empty());
  const PartGrads grads = part_grads(3, 1, 5, {}, Doubles(15, 2.5));
  EXPECT_EQ(grads.z1, Doubles(15, 2.5));
  EXPECT_EQ(grads.z2, Doubles(15, 2.5));
}

TEST(PartFactorGradient, is_the_adjoint) {
  for (const Index parts : {2, 3, 4, 9}) {
    const Index batch = 3, dim = 5;
    const Doubles z1 = normal_values(batch * parts * dim, 7);
    const Doubles z2 = normal_values(batch * parts * dim, 8);
    const Doubles grad = normal_values(batch * 2 * (parts - 1) * dim, 9);
    const PartGrads back = part_grads(batch, parts, dim, grad, zeros(batch * parts * dim));
    const double forward = test::dot(factor_of(batch, parts, z1, z2), grad);
    EXPECT_NEAR(forward, test::dot(z1, back.z1) + test::dot(z2, back.z2), 1e-13) << parts;
  }
}

TEST(PartFactorGradient, sums_to_zero_over_the_parts) {
  const Index parts = 4, dim = 6;
  const PartGrads grads = part_grads(1, parts, dim, normal_values(6 * dim, 10), zeros(parts * dim));
  for (std::size_t c = 0; c < 6; ++c) {
    double sum = 0;
    for (std::size_t k = 0; k < 4; ++k) sum += grads.z1[k * 6 + c];
    EXPECT_NEAR(sum, 0, 1e-14) << "a common shift changes nothing";
  }
}

TEST(PartFactorGradient, adds_to_what_is_there) {
  const Doubles grad = whole_values(2 * 2 * 3, 11, 50);
  const PartGrads once = part_grads(2, 2, 3, grad, zeros(12));
  const PartGrads onto = part_grads(2, 2, 3, grad, Doubles(12, 1024.0));
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(onto.z1[i], once.z1[i] + 1024);
    EXPECT_EQ(onto.z2[i], once.z2[i] + 1024);
  }
}

TEST(PartFactor, has_the_same_bits_for_any_number_of_workers) {
  const Index batch = 150, parts = 4, dim = 65;
  const Doubles z1 = normal_values(batch * parts * dim, 12);
  const Doubles z2 = normal_values(batch * parts * dim, 13);
  const Doubles grad = normal_values(batch * 6 * dim, 14);
  const PartGrads one = part_grads(batch, parts, dim, grad, z1);
  ThreadPool pool(7);
  EXPECT_EQ(factor_of(batch, parts, z1, z2, pool), factor_of(batch, parts, z1, z2));
  const PartGrads seven = part_grads(batch, parts, dim, grad, z1, pool);
  EXPECT_EQ(seven.z1, one.z1);
  EXPECT_EQ(seven.z2, one.z2);
}

TEST(PartFactorHostile, a_nan_stays_in_its_image_and_column) {
  const Index batch = 3, parts = 4, dim = 5;
  Doubles z1 = normal_values(batch * parts * dim, 15);
  const Doubles z2 = normal_values(batch * parts * dim, 16);
  const Doubles clean = factor_of(batch, parts, z1, z2);
  z1[static_cast<std::size_t>((1 * parts + 3) * dim + 2)] = kDoubleNan;
  const Doubles got = factor_of(batch, parts, z1, z2);
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Only the row with -3 z_3 reads the last part.
    const bool is_hit = i == static_cast<std::size_t>((1 * 6 + 2) * dim + 2);
    ASSERT_EQ(std::isnan(got[i]), is_hit) << i;
    if (!is_hit) {
      ASSERT_EQ(got[i], clean[i]) << i;
    }
  }
}

TEST(PartFactorHostile, an_empty_batch_touches_nothing) {
  EXPECT_EQ(test::error_of([] { part_factor({.batch = 0, .parts = 4, .dim = 64}); }), "no error");
  EXPECT_EQ(test::error_of([] { part_factor_grad({.batch = 0, .parts = 4, .dim = 64}); }),
            "no error");
}

TEST(PartFactorHostile, names_the_size_that_is_wrong) {
  EXPECT_THAT(test::error_of([] { part_factor({.batch = -1, .parts = 4, .dim = 8}); }),
              HasSubstr("[part_factor] expected batch >= 0, got -1"));
  EXPECT_THAT(test::error_of([] { part_factor({.batch = 1, .parts = 0, .dim = 8}); }),
              HasSubstr("[part_factor] expected parts > 0, got 0"));
  EXPECT_THAT(test::error_of([] { part_factor_grad({.batch = 1, .parts = 2, .dim = -8}); }),
              HasSubstr("[part_factor_grad] expected dim > 0, got -8"));
}

TEST(PartFactorHostile, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 5, 64}) {
    const test::GuardedDoubles z1(normal_values(2 * 3 * dim, 17));
    const test::GuardedDoubles z2(normal_values(2 * 3 * dim, 18));
    const test::GuardedDoubles factor(zeros(2 * 4 * dim));
    part_factor({.batch = 2,
                 .parts = 3,
                 .dim = dim,
                 .z1 = z1.data(),
                 .z2 = z2.data(),
                 .factor = factor.data()});
    part_factor_grad({.batch = 2,
                      .parts = 3,
                      .dim = dim,
                      .grad_factor = factor.data(),
                      .grad_z1 = z1.data(),
                      .grad_z2 = z2.data()});
    EXPECT_NE(factor.data()[2 * 4 * dim - 1], 0);
  }
}

}  // namespace
}  // namespace hone::kernels
