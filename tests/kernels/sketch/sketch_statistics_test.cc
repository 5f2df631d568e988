// SPDX-License-Identifier: Apache-2.0
// Distributions. Bounds are five standard deviations of the exact distribution, so that a right
// generator fails one of them for about one seed in a million; seeds are fixed.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "hone/kernels/paco/small_matrix.h"
#include "hone/kernels/sketch/apply.h"
#include "hone/kernels/sketch/sketch_draw.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "tests/kernels/sketch/sketch_support.h"

namespace hone::kernels {
namespace {

using test::all_ops;
using test::Matrix;
using test::matrix_of;
using test::text_of;

constexpr std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// The normal deviate of a chi-square value (Wilson and Hilferty, "The distribution of chi-square",
// 1931).
double deviate_of(double chi_square, double degrees) {
  const double variance = 2 / (9 * degrees);
  return (std::cbrt(chi_square / degrees) - (1 - variance)) / std::sqrt(variance);
}

// Counts of `draws` sets of `size` distinct ones of counts.size() places.
double deviate_of_sets(const std::vector<Index>& counts, Index draws, Index size) {
  const auto places = static_cast<double>(counts.size());
  const double share = static_cast<double>(size) / places;
  const double mean = static_cast<double>(draws) * share;
  double sum = 0;
  for (const Index count : counts) sum += std::pow(static_cast<double>(count) - mean, 2);
  return deviate_of(sum / (mean * (1 - share)) * (places - 1) / places, places - 1);
}

std::vector<Index> rows_of_entries(Matrix<double>& s) {
  std::vector<Index> counts(at(s.rows));
  for (Index i = 0; i < s.rows; ++i) {
    for (Index j = 0; j < s.cols; ++j) counts[at(i)] += s(i, j) != 0;
  }
  return counts;
}

TEST(SketchStatistics, positions_are_uniform) {
  // A few positions by Floyd's method, many by selection.
  for (const auto& [rows, nnz] : {std::pair<Index, Index>{20, 1}, {20, 3}, {100, 70}, {300, 64}}) {
    Matrix<double> s = matrix_of({SketchKind::SparseSign, rows, 4000, 21, 0, nnz, false});
    EXPECT_LT(std::abs(deviate_of_sets(rows_of_entries(s), 4000, nnz)), 5) << rows << " " << nnz;
  }
  Matrix<double> count = matrix_of({SketchKind::CountSketch, 37, 5000, 2});
  EXPECT_LT(std::abs(deviate_of_sets(rows_of_entries(count), 5000, 1)), 5);
  Matrix<double> blocks = matrix_of({SketchKind::Sjlt, 40, 5000, 2, 0, 2, false});
  std::vector<Index> counts = rows_of_entries(blocks);
  for (const Index begin : {0, 20}) {
    const std::vector<Index> half(counts.begin() + begin, counts.begin() + begin + 20);
    EXPECT_LT(std::abs(deviate_of_sets(half, 5000, 1)), 5);
  }
}

TEST(SketchStatistics, pairs_of_positions_are_uniform) {
  Matrix<double> s = matrix_of({SketchKind::SparseSign, 6, 30000, 4, 0, 2, false});
  std::map<std::pair<Index, Index>, Index> pairs;
  for (Index j = 0; j < s.cols; ++j) {
    Index first = -1;
    for (Index i = 0; i < 6; ++i) {
      if (s(i, j) == 0) continue;
      if (first < 0) {
        first = i;
      } else {
        ++pairs[{first, i}];
      }
    }
  }
  ASSERT_EQ(pairs.size(), 15u);
  std::vector<Index> counts;
  for (const auto& [pair, count] : pairs) counts.push_back(count);
  EXPECT_LT(std::abs(deviate_of_sets(counts, 30000, 1)), 5);
}

TEST(SketchStatistics, srht_takes_distinct_uniform_rows) {
  constexpr Index kDraws = 4000;
  for (const auto& [rows, length] : {std::pair<Index, Index>{5, 16}, {70, 128}}) {
    std::vector<Index> counts(at(length));
    double signs = 0;
    for (Index draw = 0; draw < kDraws; ++draw) {
      const SrhtPlan plan({SketchKind::Srht, rows, length, 9, static_cast<std::uint32_t>(draw)});
      for (const std::uint32_t row : plan.rows) ++counts.at(row);
      ASSERT_EQ(std::set<std::uint32_t>(plan.rows.begin(), plan.rows.end()).size(),
                plan.rows.size());
      for (Index j = 0; j < length; ++j) signs += plan.is_negative(j) ? -1 : 1;
    }
    EXPECT_LT(std::abs(deviate_of_sets(counts, kDraws, rows)), 5) << rows;
    EXPECT_LT(std::abs(signs), 5 * std::sqrt(static_cast<double>(kDraws * length)));
  }
}

TEST(SketchStatistics, signs_are_balanced_and_independent) {
  for (SketchOp op : all_ops(64, 2500, 17)) {
    if (op.kind == SketchKind::Gaussian || op.kind == SketchKind::Srht) continue;
    op.scaled = false;
    Matrix<double> s = matrix_of(op);
    Matrix<double> other = matrix_of(next_stream(op));
    double sum = 0, entries = 0, product = 0, common = 0;
    for (std::size_t i = 0; i < s.values.size(); ++i) {
      sum += s.values[i];
      entries += s.values[i] != 0;
      product += s.values[i] * other.values[i];
      common += s.values[i] * other.values[i] != 0;
    }
    EXPECT_LT(std::abs(sum), 5 * std::sqrt(entries)) << text_of(op);
    EXPECT_LE(std::abs(product), 5 * std::sqrt(common)) << text_of(op);
  }
}

// Numbers that share a word, a block, a vector of blocks or a column.
TEST(SketchStatistics, dense_entries_are_uncorrelated) {
  constexpr Index kRows = 500, kCols = 2048;
  for (const SketchKind kind : {SketchKind::Gaussian, SketchKind::Rademacher}) {
    Matrix<double> s = matrix_of({kind, kRows, kCols, 31, 0, 1, false});
    for (const Index lag : {1, 2, 3, 4, 16, 31, 32, 64, 128, 256, 2048, 4096}) {
      double sum = 0, squares = 0;
      const Index count = kRows * kCols - lag;
      for (Index i = 0; i < count; ++i) {
        const double a = s.values[at(i)], b = s.values[at(i + lag)];
        sum += a * b;
        squares += (a * a - 1) * (b * b - 1) / 2;
      }
      const double bound = 5 * std::sqrt(static_cast<double>(count));
      EXPECT_LT(std::abs(sum), bound) << lag;
      EXPECT_LT(std::abs(squares), bound) << lag;
    }
  }
}

TEST(SketchStatistics, gaussian_entries_are_normal) {
  constexpr Index kBins = 64;
  for (const std::uint64_t seed : {1, 2, 3}) {
    Matrix<float> s(1000, 1000);
    materialize({SketchKind::Gaussian, 1000, 1000, seed, 0, 1, false}, 0, 0, s.view());
    double sum = 0, squares = 0, fourth = 0;
    std::vector<Index> counts(kBins);
    for (const float value : s.values) {
      const double z = value;
      sum += z, squares += z * z, fourth += z * z * z * z;
      ASSERT_LT(std::abs(z), 5.8);
      ASSERT_NE(z, 0);
      const double share = std::erfc(-z / std::sqrt(2.0)) / 2;
      ++counts[std::min<std::size_t>(kBins - 1, static_cast<std::size_t>(share * kBins))];
    }
    const double n = 1e6;
    EXPECT_LT(std::abs(sum), 5 * std::sqrt(n));
    EXPECT_LT(std::abs(squares - n), 5 * std::sqrt(2 * n));
    EXPECT_LT(std::abs(fourth - 3 * n), 5 * std::sqrt(96 * n));
    EXPECT_LT(std::abs(deviate_of_sets(counts, 1000000, 1)), 5);
  }
}

// E|S x|^2 = |x|^2 for a vector without structure and for a unit vector.
TEST(SketchStatistics, every_kind_is_an_isometry_on_average) {
  constexpr Index kSeeds = 600;
  for (const auto& [rows, cols] : {std::pair<Index, Index>{24, 129}, {30, 20}}) {
    for (SketchOp op : all_ops(rows, cols, 100)) {
      for (const bool is_unit : {false, true}) {
        Matrix<double> x(cols, 1), y(rows, 1);
        x.fill(3);
        if (is_unit) {
          std::fill(x.values.begin(), x.values.end(), 0.0);
          x.values.back() = 1;
        }
        double norm = 0, sum = 0, squares = 0;
        for (const double value : x.values) norm += value * value;
        for (Index seed = 0; seed < kSeeds; ++seed) {
          op.seed = 100 + static_cast<std::uint64_t>(seed);
          apply_left(op, Transpose::No, x.view(), y.view());
          double ratio = 0;
          for (const double value : y.values) ratio += value * value / norm;
          sum += ratio, squares += ratio * ratio;
        }
        const double mean = sum / kSeeds;
        const double variance = std::max(0.0, squares / kSeeds - mean * mean);
        EXPECT_NEAR(mean, 1, 5 * std::sqrt(variance / kSeeds) + 1e-12)
            << text_of(op) << (is_unit ? " unit" : "");
      }
    }
  }
}

// Orthonormal columns by Gram and Schmidt, twice.
Matrix<double> random_basis(Index length, Index count) {
  Matrix<double> rows(count, length);
  rows.fill(77);
  for (Index i = 0; i < count; ++i) {
    double* row = &rows(i, 0);
    for (int pass = 0; pass < 2; ++pass) {
      for (Index k = 0; k < i; ++k) {
        const double along = std::inner_product(row, row + length, &rows(k, 0), 0.0);
        for (Index j = 0; j < length; ++j) row[j] -= along * rows(k, j);
      }
      const double norm = std::sqrt(std::inner_product(row, row + length, row, 0.0));
      for (Index j = 0; j < length; ++j) row[j] /= norm;
    }
  }
  Matrix<double> q(length, count);
  for (Index i = 0; i < length; ++i) {
    for (Index j = 0; j < count; ++j) q(i, j) = rows(j, i);
  }
  return q;
}

// (S Q)^T S Q, row-major
std::vector<double> gram_of(const SketchOp& op, Matrix<double>& q) {
  Matrix<double> product(op.rows, q.cols);
  apply_left(op, Transpose::No, q.view(), product.view());
  std::vector<double> gram(at(q.cols * q.cols));
  for (Index k = 0; k < op.rows; ++k) {
    for (Index i = 0; i < q.cols; ++i) {
      for (Index j = 0; j < q.cols; ++j) gram[at(i * q.cols + j)] += product(k, i) * product(k, j);
    }
  }
  return gram;
}

// The singular values of a Gaussian matrix [d, n] are within sqrt(n / d) + t of 1 but for a
// probability of 2 exp(-d t^2 / 2) (Davidson and Szarek, "Local operator theory, random matrices
// and Banach spaces", 2001); t = 5 / sqrt(d). The other kinds keep these bounds here, for a random
// subspace and for the last coordinates, behind a power of two; CountSketch alone needs more rows.
TEST(SketchStatistics, subspaces_are_embedded) {
  constexpr Index kLength = 513, kDim = 80, kRows = 4 * kDim;
  Matrix<double> random = random_basis(kLength, kDim), axes(kLength, kDim);
  std::fill(axes.values.begin(), axes.values.end(), 0.0);
  for (Index j = 0; j < kDim; ++j) axes(kLength - 1 - j, j) = 1;
  const double spread = 0.5 + 5 / std::sqrt(static_cast<double>(kRows));
  for (SketchOp op : all_ops(kRows, kLength)) {
    op.nnz = op.kind == SketchKind::SparseSignLong ? 16 : 8;
    for (Matrix<double>* q : {&random, &axes}) {
      if (q == &axes && op.kind == SketchKind::CountSketch) continue;
      for (op.seed = 0; op.seed < 5; ++op.seed) {
        std::vector<double> gram = gram_of(op, *q), values(at(kDim)), vectors(gram.size());
        symmetric_eigen(gram.data(), kDim, values.data(), vectors.data());
        for (const double value : values) {
          ASSERT_GT(std::sqrt(value), 1 - spread) << text_of(op);
          ASSERT_LT(std::sqrt(value), 1 + spread) << text_of(op);
        }
      }
    }
  }
}

// E|Q^T S^T S Q - I|_F^2 is (n^2 + n) / d for Gaussian entries and at most 2 n^2 / d for
// CountSketch (Clarkson and Woodruff), here and so for the others.
TEST(SketchStatistics, products_are_approximated_as_the_theory_says) {
  constexpr Index kDim = 8, kRows = 200, kSeeds = 200;
  Matrix<double> q = random_basis(300, kDim);
  for (SketchOp op : all_ops(kRows, 300)) {
    double sum = 0, squares = 0;
    for (op.seed = 0; op.seed < kSeeds; ++op.seed) {
      const std::vector<double> gram = gram_of(op, q);
      double error = 0;
      for (Index i = 0; i < kDim * kDim; ++i)
        error += std::pow(gram[at(i)] - (i % (kDim + 1) == 0 ? 1 : 0), 2);
      sum += error, squares += error * error;
    }
    const double mean = sum / kSeeds;
    const double deviation = std::sqrt((squares / kSeeds - mean * mean) / kSeeds);
    EXPECT_LT(mean, 2.0 * kDim * kDim / kRows + 5 * deviation) << text_of(op);
    if (op.kind != SketchKind::Gaussian) continue;
    EXPECT_NEAR(mean, static_cast<double>(kDim * kDim + kDim) / kRows, 5 * deviation);
  }
}

// Every column of an SRHT has length 1 whatever its length, and all rows make it orthogonal.
TEST(SketchStatistics, srht_is_flat_and_orthogonal) {
  for (const Index cols : {1, 2, 3, 5, 17, 33, 100, 128, 129}) {
    for (const Index rows : {Index{1}, cols / 2 + 1, cols}) {
      if (rows > cols) continue;
      const SketchOp op{SketchKind::Srht, rows, cols, 6};
      Matrix<double> s = matrix_of(op);
      for (Index j = 0; j < cols; ++j) {
        double square = 0;
        for (Index i = 0; i < rows; ++i) square += s(i, j) * s(i, j);
        ASSERT_NEAR(square, 1, 1e-13) << text_of(op);
      }
    }
  }
  const SketchOp op{SketchKind::Srht, 64, 64, 6};
  Matrix<double> x(64, 3), y = x, back = x;
  x.fill(2);
  apply_left(op, Transpose::No, x.view(), y.view());
  apply_left(op, Transpose::Yes, y.view(), back.view());
  for (std::size_t i = 0; i < x.values.size(); ++i) EXPECT_NEAR(back.values[i], x.values[i], 1e-14);
}

}  // namespace
}  // namespace hone::kernels
