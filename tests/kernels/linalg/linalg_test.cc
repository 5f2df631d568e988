// SPDX-License-Identifier: Apache-2.0
// Cholesky, triangular solves, eigenvalues and Gram matrices against plain loops and closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/linalg/eigen.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/kernels/linalg/triangular.h"
#include "tests/kernels/kernel_support.h"
#include "tests/support/error_of.h"

namespace hone::kernels {
namespace {

using test::kNan;
using test::random_values;
using testing::HasSubstr;

using Matrix = std::vector<double>;

Matrix random_matrix(Index rows, Index cols, std::uint64_t seed) {
  const std::vector<float> values = random_values(rows * cols, seed);
  return {values.begin(), values.end()};
}

double& at(Matrix& m, Index cols, Index i, Index j) {
  return m[static_cast<std::size_t>(i * cols + j)];
}

// a [m, k] · b [n, k]ᵀ
Matrix times_transposed(const Matrix& a, const Matrix& b, Index m, Index n, Index k) {
  Matrix out(static_cast<std::size_t>(m * n));
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j) {
      for (Index l = 0; l < k; ++l)
        at(out, n, i, j) +=
            a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(j * k + l)];
    }
  }
  return out;
}

// Positive definite, with a condition number of about n.
Matrix positive_definite(Index n, std::uint64_t seed) {
  const Matrix x = random_matrix(n, n, seed);
  Matrix a = times_transposed(x, x, n, n, n);
  for (Index i = 0; i < n; ++i) at(a, n, i, i) += 1;
  return a;
}

Matrix lower_of(Matrix m, Index n) {
  for (Index i = 0; i < n; ++i)
    for (Index j = i + 1; j < n; ++j) at(m, n, i, j) = 0;
  return m;
}

double largest_difference(const Matrix& a, const Matrix& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

constexpr Index kSizes[] = {1, 2, 3, 7, 16, 63, 64, 65, 130, 257};

TEST(Cholesky, factor_times_its_transpose_is_the_matrix) {
  ThreadPool pool(3);
  for (const Index n : kSizes) {
    const Matrix a = positive_definite(n, 11);
    Matrix l = a;
    for (Index i = 0; i < n; ++i)
      for (Index j = i + 1; j < n; ++j) at(l, n, i, j) = std::nan("");  // not read
    ASSERT_TRUE(factor_cholesky(l, n, pool)) << n;
    l = lower_of(l, n);
    EXPECT_LE(largest_difference(times_transposed(l, l, n, n, n), a),
              1e-14 * static_cast<double>(n * n))
        << n;
    Matrix serial = a;
    ASSERT_TRUE(factor_cholesky(serial, n, serial_executor()));
    EXPECT_EQ(lower_of(serial, n), l) << n;
  }
}

TEST(Cholesky, refuses_what_is_not_positive_definite) {
  for (const Index n : {1, 5, 100}) {
    Matrix zero(static_cast<std::size_t>(n * n));
    EXPECT_FALSE(factor_cholesky(zero, n, serial_executor()));
    Matrix negative = positive_definite(n, 3);
    at(negative, n, n - 1, n - 1) = -1;
    EXPECT_FALSE(factor_cholesky(negative, n, serial_executor()));
    Matrix damaged = positive_definite(n, 3);
    at(damaged, n, n - 1, 0) = std::nan("");
    EXPECT_FALSE(factor_cholesky(damaged, n, serial_executor()));
    Matrix large = positive_definite(n, 3);
    at(large, n, 0, 0) = HUGE_VAL;
    EXPECT_FALSE(factor_cholesky(large, n, serial_executor()));
  }
}

TEST(Triangular, solutions_times_the_factor_are_the_right_sides) {
  ThreadPool pool(3);
  for (const Index n : kSizes) {
    const Index rows = 37;
    Matrix l = positive_definite(n, 5);
    ASSERT_TRUE(factor_cholesky(l, n, pool));
    l = lower_of(l, n);
    Matrix transposed(l.size());
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) at(transposed, n, i, j) = at(l, n, j, i);
    const Matrix b = random_matrix(rows, n, 6);
    const double tolerance = 1e-12 * static_cast<double>(n);
    Matrix x = b;
    solve_right_transposed(l, n, x, pool);
    EXPECT_LE(largest_difference(times_transposed(x, l, rows, n, n), b), tolerance) << n;
    x = b;
    solve_right(l, n, x, pool);
    EXPECT_LE(largest_difference(times_transposed(x, transposed, rows, n, n), b), tolerance) << n;
    x = b;
    solve_cholesky(l, n, x, pool);
    const Matrix a = times_transposed(l, l, n, n, n);
    EXPECT_LE(largest_difference(times_transposed(x, a, rows, n, n), b), tolerance) << n;
  }
  Matrix l(4), b(3);
  EXPECT_THAT(test::error_of([&] { solve_right(l, 2, b, pool); }), HasSubstr("rows of 2"));
}

TEST(Triangular, products_are_subtracted) {
  ThreadPool pool(3);
  for (const auto& [m, n, k] : {std::tuple<Index, Index, Index>{1, 1, 0},
                                {1, 1, 1},
                                {5, 3, 7},
                                {33, 6, 1100},
                                {70, 129, 64}}) {
    const Matrix a = random_matrix(m, k, 1), b = random_matrix(n, k, 2);
    Matrix c = random_matrix(m, n, 3), want = c;
    const Matrix product = times_transposed(a, b, m, n, k);
    for (std::size_t i = 0; i < c.size(); ++i) want[i] -= product[i];
    subtract_product({.a = a.data(),
                      .a_stride = k,
                      .b = b.data(),
                      .b_stride = k,
                      .c = c.data(),
                      .c_stride = n,
                      .rows = m,
                      .cols = n,
                      .depth = k},
                     pool);
    EXPECT_LE(largest_difference(c, want), 1e-12);
  }
}

TEST(SymmetricEigen, of_the_second_difference_are_known) {
  for (const Index n : {1, 2, 3, 10, 100}) {
    Matrix a(static_cast<std::size_t>(n * n));
    for (Index i = 0; i < n; ++i) {
      at(a, n, i, i) = 2;
      if (i > 0) at(a, n, i, i - 1) = -1;
    }
    const SymmetricEigen eigen = decompose_symmetric(a, n, serial_executor());
    for (Index k = 0; k < n; ++k) {
      const double angle =
          std::numbers::pi * static_cast<double>(n - k) / (2 * static_cast<double>(n + 1));
      EXPECT_NEAR(eigen.values[static_cast<std::size_t>(k)], 4 * std::pow(std::sin(angle), 2),
                  1e-13);
    }
  }
}

TEST(SymmetricEigen, vectors_are_orthonormal_and_give_the_matrix) {
  ThreadPool pool(3);
  for (const Index n : kSizes) {
    Matrix a = random_matrix(n, n, 9);
    for (Index i = 0; i < n; ++i)
      for (Index j = i + 1; j < n; ++j) at(a, n, i, j) = at(a, n, j, i);
    const SymmetricEigen eigen = decompose_symmetric(a, n, pool);
    ASSERT_TRUE(std::ranges::is_sorted(eigen.values, std::greater<>()));
    Matrix identity(a.size());
    for (Index i = 0; i < n; ++i) at(identity, n, i, i) = 1;
    const double tolerance = 1e-13 * static_cast<double>(n);
    EXPECT_LE(largest_difference(times_transposed(eigen.vectors, eigen.vectors, n, n, n), identity),
              tolerance);
    Matrix columns(a.size()), scaled(a.size());
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j) {
        at(columns, n, j, i) = eigen.vectors[static_cast<std::size_t>(i * n + j)];
        at(scaled, n, j, i) = at(columns, n, j, i) * eigen.values[static_cast<std::size_t>(i)];
      }
    }
    EXPECT_LE(largest_difference(times_transposed(columns, scaled, n, n, n), a), tolerance) << n;
    const SymmetricEigen serial = decompose_symmetric(a, n, serial_executor());
    EXPECT_EQ(serial.values, eigen.values);
    EXPECT_EQ(serial.vectors, eigen.vectors);
  }
}

TEST(SymmetricEigen, of_repeated_and_zero_values) {
  const Index n = 40;
  Matrix rank_two(n * n);
  const Matrix x = random_matrix(2, n, 4);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      at(rank_two, n, i, j) =
          x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(j)] +
          x[static_cast<std::size_t>(n + i)] * x[static_cast<std::size_t>(n + j)];
  const SymmetricEigen eigen = decompose_symmetric(rank_two, n, serial_executor());
  EXPECT_GT(eigen.values[1], 0.1);
  for (std::size_t i = 2; i < eigen.values.size(); ++i) EXPECT_NEAR(eigen.values[i], 0, 1e-13);
  Matrix same(n * n);
  for (Index i = 0; i < n; ++i) at(same, n, i, i) = 3;
  for (const double value : decompose_symmetric(same, n, serial_executor()).values)
    EXPECT_EQ(value, 3);
  same[0] = kNan;
  EXPECT_THAT(test::error_of([&] { decompose_symmetric(same, n, serial_executor()); }),
              HasSubstr("finite"));
}

TEST(Gram, matches_plain_sums_for_any_split_of_rows) {
  ThreadPool pool(3);
  for (const Index cols : {1, 5, 96, 97, 300, 520}) {
    const Index rows = 600, stride = cols + 3;
    const std::vector<float> x = random_values(rows * stride, 8);
    Gram all(cols), parts(cols);
    all.add(x.data(), rows, stride, pool);
    parts.add(x.data(), 1, stride, pool);
    parts.add(x.data() + stride, 255, stride, serial_executor());
    parts.add(x.data() + 256 * stride, rows - 256, stride, pool);
    parts.add(x.data(), 0, stride, pool);
    EXPECT_EQ(all.rows(), rows);
    EXPECT_EQ(parts.rows(), rows);
    for (Index i = 0; i < cols; i += 7) {
      for (Index j = 0; j < cols; j += 3) {
        double want = 0;
        for (Index r = 0; r < rows; ++r)
          want += static_cast<double>(x[static_cast<std::size_t>(r * stride + i)]) *
                  static_cast<double>(x[static_cast<std::size_t>(r * stride + j)]);
        ASSERT_NEAR(all(i, j), want, 2e-4) << i << ' ' << j;
        ASSERT_NEAR(parts(i, j), want, 2e-4);
        ASSERT_EQ(all(i, j), all(j, i));
      }
    }
    EXPECT_TRUE(all.is_finite());
  }
}

TEST(Gram, is_the_same_for_any_number_of_threads_and_tells_what_is_not_finite) {
  ThreadPool pool(3);
  std::vector<float> x = random_values(100 * 200, 2);
  Gram many(200), one(200);
  many.add(x.data(), 100, 200, pool);
  one.add(x.data(), 100, 200, serial_executor());
  EXPECT_TRUE(std::ranges::equal(many.lower(), one.lower()));
  x[777] = kNan;
  one.add(x.data(), 100, 200, pool);
  EXPECT_FALSE(one.is_finite());
  EXPECT_THAT(test::error_of([] { Gram none(0); }), HasSubstr("column"));
}

Gram gram_of_rows(const std::vector<float>& x, Index cols) {
  Gram gram(cols);
  gram.add(x.data(), std::ssize(x) / cols, cols, serial_executor());
  return gram;
}

TEST(Gram, has_both_triangles_as_a_whole_matrix) {
  const Index cols = 19;
  const std::vector<float> x = random_values(40 * cols, 3);
  const Gram gram = gram_of_rows(x, cols);
  Matrix full = gram.full();
  for (Index i = 0; i < cols; ++i) {
    for (Index j = 0; j < cols; ++j) {
      EXPECT_EQ(at(full, cols, i, j), gram(i, j));
      EXPECT_EQ(at(full, cols, i, j), at(full, cols, j, i));
    }
  }
}

// The moments of A x are those of rows that A has been applied to.
TEST(Gram, of_a_projection_is_that_of_its_outputs) {
  const Index cols = 24, count = 150;
  const std::vector<float> x = random_values(count * cols, 1);
  const Gram gram = gram_of_rows(x, cols);
  for (const Index rank : {1, 10, 24, 40}) {
    const std::vector<float> a = random_values(rank * cols, 2);
    std::vector<float> y(static_cast<std::size_t>(count * rank));
    for (Index row = 0; row < count; ++row) {
      for (Index r = 0; r < rank; ++r) {
        double sum = 0;
        for (Index j = 0; j < cols; ++j)
          sum += static_cast<double>(a[static_cast<std::size_t>(r * cols + j)]) *
                 static_cast<double>(x[static_cast<std::size_t>(row * cols + j)]);
        y[static_cast<std::size_t>(row * rank + r)] = static_cast<float>(sum);
      }
    }
    const Gram want = gram_of_rows(y, rank);
    ThreadPool pool(3);
    const Gram got = gram.projected(a, serial_executor()), many = gram.projected(a, pool);
    EXPECT_EQ(got.rows(), count);
    EXPECT_EQ(got.full(), many.full());
    for (Index i = 0; i < rank; ++i)
      for (Index j = 0; j < rank; ++j)
        EXPECT_NEAR(got(i, j), want(i, j), 1e-5 * std::sqrt(want(i, i) * want(j, j)));
  }
}

TEST(Gram, refuses_a_projection_of_other_columns) {
  const Gram gram = gram_of_rows(random_values(24, 1), 8);
  for (const Index size : {0, 7, 12})
    EXPECT_THAT(
        hone::test::refusal([&] { gram.projected(random_values(size, 1), serial_executor()); }),
        HasSubstr("rows of 8"));
}

}  // namespace
}  // namespace hone::kernels
