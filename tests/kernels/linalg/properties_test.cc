// SPDX-License-Identifier: Apache-2.0
// Properties of the decompositions on matrices that are hard: ill-conditioned, singular, scaled,
// graded, and those that occur as second moments of inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/linalg/eigen.h"
#include "hone/kernels/linalg/gram.h"
#include "hone/kernels/linalg/triangular.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels {
namespace {

using test::GuardedFloats;
using test::random_values;

class Square {
 public:
  explicit Square(Index n) : n_(n), values_(static_cast<std::size_t>(n * n)) {}
  template <class Element>
  Square(Index n, const Element& element) : Square(n) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) (*this)(i, j) = element(i, j);
  }

  double& operator()(Index i, Index j) { return values_[static_cast<std::size_t>(i * n_ + j)]; }
  double operator()(Index i, Index j) const {
    return values_[static_cast<std::size_t>(i * n_ + j)];
  }
  Index n() const { return n_; }
  std::vector<double>& values() { return values_; }
  const std::vector<double>& values() const { return values_; }

 private:
  Index n_;
  std::vector<double> values_;
};

// Rows of standard uniform inputs whose column j is scaled by `scale(j)`.
template <class Scale>
std::vector<float> inputs(Index rows, Index cols, std::uint64_t seed, const Scale& scale) {
  std::vector<float> x = random_values(rows * cols, seed);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] *= static_cast<float>(scale(static_cast<Index>(i) % cols));
  return x;
}

Square moments(const std::vector<float>& x, Index cols, double damping = 0) {
  Gram gram(cols);
  gram.add(x.data(), std::ssize(x) / cols, cols, serial_executor());
  return Square(cols, [&](Index i, Index j) { return gram(i, j) + (i == j ? damping : 0); });
}

double reconstruction_error(const Square& l, const Square& a) {
  double most = 0, size = 0;
  for (Index i = 0; i < a.n(); ++i) {
    for (Index j = 0; j <= i; ++j) {
      double sum = 0;
      for (Index k = 0; k <= j; ++k) sum += l(i, k) * l(j, k);
      most = std::max(most, std::abs(sum - a(i, j)));
      size = std::max(size, std::abs(a(i, j)));
    }
  }
  return most / size;
}

// Backward stability does not depend on the condition number.
TEST(CholeskyProperties, the_product_is_exact_even_where_the_matrix_is_nearly_singular) {
  for (const Index n : {4, 8, 12}) {
    const Square hilbert(n, [](Index i, Index j) { return 1.0 / static_cast<double>(i + j + 1); });
    Square l = hilbert;
    ASSERT_TRUE(factor_cholesky(l.values(), n, serial_executor())) << n;
    EXPECT_LE(reconstruction_error(l, hilbert), 1e-15 * static_cast<double>(n));
  }
  const auto graded = [](Index j) { return std::pow(10.0, -static_cast<double>(j) / 16); };
  const Square a = moments(inputs(400, 96, 3, graded), 96);
  Square l = a;
  ASSERT_TRUE(factor_cholesky(l.values(), 96, serial_executor()));
  EXPECT_LE(reconstruction_error(l, a), 1e-13);
}

TEST(CholeskyProperties, the_diagonal_gives_the_determinant_of_a_known_matrix) {
  // The matrix min(i, j) has determinant 1, and its factor is all ones.
  for (const Index n : {1, 5, 64, 65, 200}) {
    Square l(n, [](Index i, Index j) { return static_cast<double>(std::min(i, j) + 1); });
    ASSERT_TRUE(factor_cholesky(l.values(), n, serial_executor()));
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) ASSERT_EQ(l(i, j), 1) << n << ' ' << i << ' ' << j;
  }
}

TEST(CholeskyProperties, scaling_by_powers_of_four_scales_the_factor_exactly) {
  const auto flat = [](Index) { return 1.0; };
  const Square a = moments(inputs(200, 70, 5, flat), 70, 1);
  Square l = a;
  ASSERT_TRUE(factor_cholesky(l.values(), 70, serial_executor()));
  for (const int power : {-200, -10, 10, 200}) {
    Square scaled(70, [&](Index i, Index j) { return std::ldexp(a(i, j), 2 * power); });
    ASSERT_TRUE(factor_cholesky(scaled.values(), 70, serial_executor()));
    for (Index i = 0; i < 70; ++i)
      for (Index j = 0; j <= i; ++j) ASSERT_EQ(scaled(i, j), std::ldexp(l(i, j), power));
  }
}

// Fewer rows than columns give a singular matrix, which damping makes positive definite.
TEST(CholeskyProperties, damping_makes_few_inputs_positive_definite) {
  const auto flat = [](Index) { return 1.0; };
  for (const Index rows : {1, 3, 50}) {
    const std::vector<float> x = inputs(rows, 128, 7, flat);
    double mean = 0;
    const Square plain = moments(x, 128);
    for (Index i = 0; i < 128; ++i) mean += plain(i, i) / 128;
    for (const double damp : {1.0, 1e-2, 1e-6}) {
      Square damped = moments(x, 128, damp * mean);
      EXPECT_TRUE(factor_cholesky(damped.values(), 128, serial_executor())) << rows << ' ' << damp;
    }
  }
}

TEST(TriangularProperties, a_solution_of_the_identity_is_the_inverse) {
  const Index n = 90;
  const auto flat = [](Index) { return 1.0; };
  const Square a = moments(inputs(300, n, 9, flat), n, 2);
  Square l = a;
  ASSERT_TRUE(factor_cholesky(l.values(), n, serial_executor()));
  Square inverse(n, [](Index i, Index j) { return i == j ? 1.0 : 0.0; });
  solve_cholesky(l.values(), n, inverse.values(), serial_executor());
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) {
      EXPECT_NEAR(inverse(i, j), inverse(j, i), 1e-13);
      double sum = 0;
      for (Index k = 0; k < n; ++k) sum += inverse(i, k) * a(k, j);
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-11);
    }
  }
}

// A part of a matrix changes, and nothing around it.
TEST(TriangularProperties, products_are_subtracted_from_a_part_of_a_matrix) {
  const Index n = 40;
  const std::vector<float> drawn = random_values(n * n, 12);
  for (const auto& [row, col, rows, cols, depth] : {std::array<Index, 5>{3, 5, 7, 9, 11},
                                                    {0, 0, 40, 40, 40},
                                                    {39, 39, 1, 1, 3},
                                                    {10, 20, 1, 17, 5},
                                                    {2, 1, 33, 1, 38}}) {
    Square a(n, [&](Index i, Index j) { return drawn[static_cast<std::size_t>(i * n + j)]; });
    const Square before = a;
    const Square left(n, [](Index i, Index j) { return static_cast<double>(i - 2 * j); });
    const Square right(n, [](Index i, Index j) { return static_cast<double>(3 * i + j); });
    subtract_product({.a = left.values().data(),
                      .a_stride = n,
                      .b = right.values().data(),
                      .b_stride = n,
                      .c = &a(row, col),
                      .c_stride = n,
                      .rows = rows,
                      .cols = cols,
                      .depth = depth},
                     serial_executor());
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j) {
        double want = before(i, j);
        const bool inside = i >= row && i < row + rows && j >= col && j < col + cols;
        double sum = 0;
        for (Index k = 0; inside && k < depth; ++k) sum += left(i - row, k) * right(j - col, k);
        want -= sum;
        ASSERT_EQ(a(i, j), want) << i << ' ' << j;  // whole numbers, so the sum is exact
      }
    }
  }
}

TEST(TriangularProperties, rows_are_solved_one_by_one) {
  const Index n = 130, rows = 75;
  const auto flat = [](Index) { return 1.0; };
  Square l = moments(inputs(300, n, 4, flat), n, 1);
  ASSERT_TRUE(factor_cholesky(l.values(), n, serial_executor()));
  const std::vector<float> drawn = random_values(rows * n, 5);
  std::vector<double> all(drawn.begin(), drawn.end());
  const std::vector<double> before = all;
  ThreadPool pool(3);
  solve_cholesky(l.values(), n, all, pool);
  for (const Index row : {Index{0}, Index{31}, Index{32}, rows - 1}) {
    std::vector<double> one(before.begin() + row * n, before.begin() + (row + 1) * n);
    solve_cholesky(l.values(), n, one, serial_executor());
    // Rows are taken in pairs, which does not change a row's bits.
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * n)) << row;
  }
}

void expect_pairs(const Square& a, const SymmetricEigen& eigen, double tolerance) {
  const Index n = a.n();
  for (Index k = 0; k < n; ++k) {
    const double* v = eigen.vectors.data() + k * n;
    for (Index i = 0; i < n; ++i) {
      double sum = 0;
      for (Index j = 0; j < n; ++j) sum += a(std::max(i, j), std::min(i, j)) * v[j];
      ASSERT_NEAR(sum, eigen.values[static_cast<std::size_t>(k)] * v[i], tolerance) << k;
    }
  }
}

TEST(EigenProperties, values_keep_trace_and_squares_and_pairs_hold) {
  const auto graded = [](Index j) { return std::pow(10.0, -static_cast<double>(j) / 20); };
  for (const Index n : {2, 33, 100, 190}) {
    const Square a = moments(inputs(2 * n, n, 6, graded), n);
    const SymmetricEigen eigen = decompose_symmetric(a.values(), n, serial_executor());
    double trace = 0, squares = 0;
    for (Index i = 0; i < n; ++i) {
      trace += a(i, i);
      for (Index j = 0; j < n; ++j) squares += a(i, j) * a(i, j);
    }
    const auto& values = eigen.values;
    EXPECT_NEAR(std::accumulate(values.begin(), values.end(), 0.0), trace, 1e-12 * trace);
    EXPECT_NEAR(std::inner_product(values.begin(), values.end(), values.begin(), 0.0), squares,
                1e-12 * squares);
    EXPECT_GE(values.back(), -1e-12 * trace) << "second moments have no negative value";
    expect_pairs(a, eigen, 1e-12 * trace);
  }
}

TEST(EigenProperties, the_discrete_laplacian_of_a_ring_has_pairs_of_equal_values) {
  const Index n = 48;
  const Square ring(n, [&](Index i, Index j) {
    const Index distance = std::abs(i - j);
    return i == j ? 2.0 : distance == 1 || distance == n - 1 ? -1.0 : 0.0;
  });
  const SymmetricEigen eigen = decompose_symmetric(ring.values(), n, serial_executor());
  EXPECT_NEAR(eigen.values.front(), 4, 1e-13);
  EXPECT_NEAR(eigen.values.back(), 0, 1e-13);
  for (std::size_t i = 1; i + 2 < eigen.values.size(); i += 2)
    EXPECT_NEAR(eigen.values[i], eigen.values[i + 1], 1e-12);
  expect_pairs(ring, eigen, 1e-12);
}

TEST(EigenProperties, matrices_that_are_diagonal_or_one_number_apart_need_no_iteration) {
  const Index n = 70;
  const Square diagonal(n, [](Index i, Index j) { return i == j ? static_cast<double>(i) : 0; });
  const SymmetricEigen eigen = decompose_symmetric(diagonal.values(), n, serial_executor());
  for (Index i = 0; i < n; ++i) {
    EXPECT_EQ(eigen.values[static_cast<std::size_t>(i)], static_cast<double>(n - 1 - i));
    EXPECT_EQ(std::abs(eigen.vectors[static_cast<std::size_t>(i * n + n - 1 - i)]), 1);
  }
  // I + u uᵀ has the value 1 + ‖u‖² once and 1 otherwise.
  const Square plus(n, [](Index i, Index j) { return (i == j ? 1.0 : 0.0) + 0.25; });
  const auto values = decompose_symmetric(plus.values(), n, serial_executor()).values;
  EXPECT_NEAR(values.front(), 1 + 0.25 * static_cast<double>(n), 1e-12);
  for (std::size_t i = 1; i < values.size(); ++i) EXPECT_NEAR(values[i], 1, 1e-12);
}

TEST(EigenProperties, only_the_lower_triangle_is_read) {
  const Index n = 20;
  const auto flat = [](Index) { return 1.0; };
  const Square a = moments(inputs(50, n, 1, flat), n);
  Square half = a;
  for (Index i = 0; i < n; ++i)
    for (Index j = i + 1; j < n; ++j) half(i, j) = 1e300;
  EXPECT_EQ(decompose_symmetric(half.values(), n, serial_executor()).values,
            decompose_symmetric(a.values(), n, serial_executor()).values);
}

TEST(GramProperties, reads_nothing_behind_the_last_row) {
  for (const Index cols : {1, 7, 96, 130}) {
    const Index rows = 33, stride = cols + 5;
    std::vector<float> x = random_values((rows - 1) * stride + cols, 3);
    const GuardedFloats guarded(x);
    Gram gram(cols);
    gram.add(guarded.data(), rows, stride, serial_executor());
    double want = 0;
    for (Index r = 0; r < rows; ++r)
      want += std::pow(static_cast<double>(x[static_cast<std::size_t>(r * stride + cols - 1)]), 2);
    EXPECT_NEAR(gram(cols - 1, cols - 1), want, 1e-5);
  }
}

// Sums of whole numbers are exact, so the order of adding does not matter.
TEST(GramProperties, is_exact_for_small_whole_numbers) {
  const Index rows = 700, cols = 150;
  const std::vector<float> x = test::random_integers(rows * cols, 4, 8);
  Gram gram(cols);
  gram.add(x.data(), rows, cols, serial_executor());
  EXPECT_EQ(gram.cols(), cols);
  EXPECT_EQ(gram.rows(), rows);
  for (Index i = 0; i < cols; i += 11) {
    for (Index j = 0; j < cols; ++j) {
      double want = 0;
      for (Index r = 0; r < rows; ++r)
        want += static_cast<double>(x[static_cast<std::size_t>(r * cols + i)]) *
                static_cast<double>(x[static_cast<std::size_t>(r * cols + j)]);
      ASSERT_EQ(gram(i, j), want);
    }
  }
}

}  // namespace
}  // namespace hone::kernels
