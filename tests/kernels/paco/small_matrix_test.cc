// SPDX-License-Identifier: Apache-2.0
// The linear algebra of the part geometry by its defining equations, and the functions of the
// spectrum of few rows by closed forms.
#include "hone/kernels/paco/small_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/kernels/paco/row_spectrum.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/paco/cov_oracle.h"

namespace hone::kernels {
namespace {

using oracle::random_doubles;
using oracle::Real;
using oracle::Values;

constexpr Index kSizes[] = {1, 2, 3, 4, 5, 7, 8, 14, 17, 33, 64};
constexpr double kRounding = 0x1p-53;

std::size_t at(Index i, Index j, Index n) { return static_cast<std::size_t>(i * n + j); }

// Bᵀ B of random b with `rank` rows: exactly symmetric.
Values random_gram(Index n, Index rank, std::uint64_t seed) {
  const Values b = random_doubles(rank * n, seed);
  Values out(static_cast<std::size_t>(n * n));
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      for (Index k = 0; k < rank; ++k) out[at(i, j, n)] += b[at(k, i, n)] * b[at(k, j, n)];
    }
  }
  return out;
}

TEST(SmallMatrix, products_equal_plain_loops) {
  for (const Index dim : {1, 2, 3, 4, 7, 8, 9, 16, 31, 64, 513}) {
    const Index n = 3, m = 5;
    const Values a = random_doubles(n * dim, 1), b = random_doubles(m * dim, 2);
    const Values w = random_doubles(n * m, 3);
    Values inner(15, 9.0), mixed(a.size(), 9.0), turned(b.size(), 9.0);
    inner_products(a.data(), n, b.data(), m, dim, inner.data());
    mix_rows(w.data(), n, b.data(), m, dim, mixed.data());
    mix_rows_transposed(w.data(), m, a.data(), n, dim, turned.data());
    const double tolerance = static_cast<double>(dim + 8) * kRounding;
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < m; ++j) {
        double want = 0;
        for (Index d = 0; d < dim; ++d) want += a[at(i, d, dim)] * b[at(j, d, dim)];
        ASSERT_NEAR(inner[at(i, j, m)], want, tolerance * static_cast<double>(dim));
      }
    }
    for (Index d = 0; d < dim; ++d) {
      for (Index i = 0; i < n; ++i) {
        double want = 0;
        for (Index j = 0; j < m; ++j) want += w[at(i, j, m)] * b[at(j, d, dim)];
        ASSERT_NEAR(mixed[at(i, d, dim)], want, 10 * kRounding * 5) << dim;
      }
      for (Index j = 0; j < m; ++j) {
        double want = 0;
        for (Index i = 0; i < n; ++i) want += w[at(i, j, m)] * a[at(i, d, dim)];
        ASSERT_NEAR(turned[at(j, d, dim)], want, 10 * kRounding * 5) << dim;
      }
    }
  }
}

TEST(SmallMatrix, a_column_as_weights_gives_symmetric_bits) {
  for (const Index dim : kSizes) {
    const Values rows = random_doubles(6 * dim, 4);
    Values product(static_cast<std::size_t>(dim * dim));
    for (Index i = 0; i < dim; ++i)
      mix_row(rows.data() + i, dim, rows.data(), 6, dim, product.data() + i * dim);
    for (Index i = 0; i < dim; ++i) {
      for (Index j = 0; j < i; ++j) ASSERT_EQ(product[at(i, j, dim)], product[at(j, i, dim)]);
    }
  }
}

TEST(SmallMatrix, cholesky_multiplies_back_and_solves) {
  for (const Index n : kSizes) {
    Values a = random_gram(n, n, 5);
    for (Index i = 0; i < n; ++i) a[at(i, i, n)] += 0.5;
    Values factor = a;
    ASSERT_TRUE(cholesky(factor.data(), n));
    const double tolerance = static_cast<double>(4 * n * n) * kRounding;
    for (Index i = 0; i < n; ++i) {
      for (Index j = i; j < n; ++j) {
        double sum = 0;
        for (Index k = 0; k <= i; ++k) sum += factor[at(k, i, n)] * factor[at(k, j, n)];
        ASSERT_NEAR(sum, a[at(i, j, n)], tolerance);
        if (j > i) {
          ASSERT_EQ(factor[at(j, i, n)], a[at(j, i, n)]) << "the lower triangle";
        }
      }
    }
    const Values x = random_doubles(2 * n, 6);
    Values ax(x.size());
    mix_rows(x.data(), 2, a.data(), n, n, ax.data());
    cholesky_solve(factor.data(), n, ax.data(), 2);
    // The least eigenvalue is at least 0.5, the largest less than n².
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(ax[i], x[i], 8 * tolerance) << n;
  }
}

TEST(SmallMatrix, cholesky_refuses_what_is_not_positive_definite) {
  for (const double bad : {0.0, -1.0, std::nan("")}) {
    Values a{4, 0, 0, 0, 1, 0, 0, 0, bad};
    EXPECT_FALSE(cholesky(a.data(), 3));
  }
  Values indefinite{1, 2, 2, 1};
  EXPECT_FALSE(cholesky(indefinite.data(), 2));
}

void expect_eigen(const Values& a, Index n, const std::string& what) {
  Values work = a, values(static_cast<std::size_t>(n)), vectors(a.size());
  symmetric_eigen(work.data(), n, values.data(), vectors.data());
  double size = 0;
  for (const double value : a) size = std::max(size, std::abs(value));
  const double tolerance = static_cast<double>(8 * n + 8) * kRounding;
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      double product = 0, inner = 0;
      for (Index k = 0; k < n; ++k) {
        const double value = values[static_cast<std::size_t>(k)];
        product += value * vectors[at(k, i, n)] * vectors[at(k, j, n)];
        inner += vectors[at(i, k, n)] * vectors[at(j, k, n)];
      }
      ASSERT_NEAR(product, a[at(i, j, n)], tolerance * static_cast<double>(n) * size) << what;
      ASSERT_NEAR(inner, i == j ? 1 : 0, tolerance) << what;
    }
  }
}

TEST(SymmetricEigen, multiplies_back_from_orthonormal_vectors) {
  for (const Index n : kSizes) {
    expect_eigen(random_gram(n, n, 7), n, "definite");
    expect_eigen(random_gram(n, 1, 8), n, "of rank one");
    expect_eigen(Values(static_cast<std::size_t>(n * n), 0.0), n, "zero");
    expect_eigen(Values(static_cast<std::size_t>(n * n), 1.0), n, "ones");
    Values indefinite = random_gram(n, n, 9);
    for (Index i = 0; i < n; ++i) indefinite[at(i, i, n)] -= 1;
    expect_eigen(indefinite, n, "indefinite");
  }
}

TEST(SymmetricEigen, keeps_the_digits_of_small_values_of_graded_matrices) {
  // [[a, b], [b, c]] with a far above c: the small value is (a c - b²) / the large one.
  Values a{1e20, 1e4, 1e4, 1e-8}, values(2), vectors(4);
  symmetric_eigen(a.data(), 2, values.data(), vectors.data());
  const double small = std::min(values[0], values[1]);
  EXPECT_NEAR(small, 1e-8 - 1e-12, 1e-22);
}

TEST(SymmetricEigen, ends_on_values_that_are_not_finite) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    Values a{bad, bad, 1, bad, bad, 1, 1, 1, 1}, values(3), vectors(9);
    symmetric_eigen(a.data(), 3, values.data(), vectors.data());
    EXPECT_FALSE(std::isfinite(values[0] + values[1] + values[2]));
  }
}

TEST(SmallMatrix, reads_and_writes_up_to_the_page_and_no_further) {
  for (const Index dim : {1, 2, 3, 5, 8, 13}) {
    const auto floats = static_cast<std::size_t>(4 * dim);  // two rows of doubles
    const test::GuardedFloats a{std::vector<float>(floats)}, out{std::vector<float>(floats)};
    auto* rows = reinterpret_cast<double*>(a.data());
    auto* mixed = reinterpret_cast<double*>(out.data());
    for (Index i = 0; i < 2 * dim; ++i) rows[i] = static_cast<double>(i), mixed[i] = 0;
    const double weights[] = {1, 2, 3, 4};
    double inner[4];
    inner_products(rows, 2, rows, 2, dim, inner);
    mix_rows(weights, 2, rows, 2, dim, mixed);
    EXPECT_EQ(mixed[2 * dim - 1], static_cast<double>(3 * (dim - 1) + 4 * (2 * dim - 1)));
  }
}

TEST(LogRatio, has_its_closed_values) {
  EXPECT_EQ(log_ratio(0), 1);
  EXPECT_EQ(log_ratio(1e-300), 1);
  EXPECT_DOUBLE_EQ(log_ratio(1), std::log(2));
  EXPECT_DOUBLE_EQ(log_ratio_slope(0, 0), -0.5);
  EXPECT_NEAR(log_ratio_slope(1, 1), 0.5 - std::log(2), 1e-15);
  EXPECT_NEAR(log_ratio_slope(3, 1), (std::log(4) / 3 - std::log(2)) / 2, 1e-15);
  EXPECT_NEAR(log_ratio_slope(1, 0), std::log(2) - 1, 1e-15);
  EXPECT_NEAR(log_ratio_slope(0.01, 0), (std::log1p(0.01) / 0.01 - 1) / 0.01, 1e-13);
}

// -∫ t / ((1 + t x) (1 + t y)) dt over [0, 1] by Simpson's rule, its points dense near 0.
double slope_by_integral(Real x, Real y) {
  constexpr int kSteps = 20000;
  const auto f = [&](int i) {
    const Real s = static_cast<Real>(i) / kSteps, t = s * s * s;
    return t / ((1 + t * x) * (1 + t * y)) * 3 * s * s;
  };
  Real sum = 0;
  for (int i = 0; i < kSteps; i += 2) sum += f(i) + 4 * f(i + 1) + f(i + 2);
  return static_cast<double>(-sum / (3 * kSteps));
}

TEST(LogRatio, slope_equals_its_integral_for_close_and_distant_arguments) {
  const double points[] = {0,   1e-9, 0.01, 0.0499, 0.05, 0.0501, 0.1, 0.1 + 1e-9,
                           0.2, 0.5,  1,    1.0001, 2,    10,     100, 100.5};
  for (const double x : points) {
    for (const double y : points) {
      const double want = slope_by_integral(x, y);
      EXPECT_NEAR(log_ratio_slope(x, y), want, 2e-13 * std::abs(want)) << x << " " << y;
      EXPECT_EQ(log_ratio_slope(x, y), log_ratio_slope(y, x));
    }
  }
}

}  // namespace
}  // namespace hone::kernels
