// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/pivoted_qr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "tests/support/error_of.h"
#include "tests/support/peer.h"
#include "tests/train/linalg/matrices.h"

namespace hone::linalg {
namespace {

using namespace test;

void expect_pivoted_qr(const Tensor& a, const PivotedQr& qr) {
  const Index k = std::min(a.size(0), a.size(1));
  const double unit = a.scalar_type() == at::kFloat ? 1.2e-7 : 2.3e-16;
  const auto size = static_cast<double>(std::max(a.size(0), a.size(1)));
  ASSERT_EQ(qr.q.sizes(), (std::vector<std::int64_t>{a.size(0), k}));
  ASSERT_EQ(qr.r.sizes(), (std::vector<std::int64_t>{k, a.size(1)}));
  EXPECT_EQ(qr.q.scalar_type(), a.scalar_type());
  EXPECT_EQ(qr.r.scalar_type(), a.scalar_type());
  EXPECT_TRUE(is_permutation(qr.pivots));
  EXPECT_TRUE(is_upper(qr.r));
  EXPECT_LT(orthogonality(qr.q),
            10 * unit * std::sqrt(size) * std::sqrt(static_cast<double>(k + 1)));
  EXPECT_LT(qr_residual(a, qr.q, qr.r, qr.pivots), 10 * unit * std::sqrt(size));
  // Entry (i, j) is not longer than what is left of any column at step i.
  const Tensor r = qr.r.to(at::kDouble);
  const double slack = 1 + std::sqrt(unit);
  for (Index i = 0; i < k; ++i) {
    const double head = r[i][i].item<double>();
    EXPECT_GE(head, 0);
    EXPECT_GE(head * slack + 10 * unit * frobenius(a), largest(r[i])) << "row " << i;
  }
}

// Gram and Schmidt's process, which computes every length in every step.
PivotedQr by_gram_schmidt(const Tensor& a) {
  Tensor rest = a.clone();
  const Index m = a.size(0), n = a.size(1), k = std::min(m, n);
  PivotedQr qr{at::zeros({m, k}, at::kDouble), at::zeros({k, n}, at::kDouble),
               at::arange(n, at::kLong)};
  const auto swap = [](Tensor columns, Index i, Index j) {
    const Tensor kept = columns.select(-1, i).clone();
    columns.select(-1, i).copy_(columns.select(-1, j));
    columns.select(-1, j).copy_(kept);
  };
  for (Index i = 0; i < k; ++i) {
    const Index pivot = i + rest.narrow(1, i, n - i).norm(2, 0).argmax().item<Index>();
    for (const Tensor& columns : {rest, qr.r, qr.pivots}) swap(columns, i, pivot);
    Tensor q = rest.select(1, i).clone();
    q -= at::mv(qr.q, at::mv(qr.q.t(), q));
    q /= q.norm();
    qr.q.select(1, i).copy_(q);
    const Tensor row = at::mv(rest.t(), q);
    qr.r.select(0, i).narrow(0, i, n - i).copy_(row.narrow(0, i, n - i));
    rest -= at::outer(q, row);
  }
  return qr;
}

TEST(PivotedQr, FactorsMatricesOfEveryShapeAndType) {
  for (const auto& [m, n] : {std::pair{1, 1},
                             {1, 7},
                             {7, 1},
                             {5, 5},
                             {33, 32},
                             {32, 33},
                             {40, 90},
                             {90, 40},
                             {130, 97},
                             {97, 130}}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(c10::str(m, " x ", n, " ", type));
      const Tensor a = gaussian(m, n, 1, type);
      expect_pivoted_qr(a, pivoted_qr(a));
    }
  }
}

TEST(PivotedQr, OrdersOrthogonalColumnsByTheirLengths) {
  const Tensor a = at::diag(at::tensor({1.0, -5.0, 3.0, 0.0}));
  const PivotedQr qr = pivoted_qr(a);
  EXPECT_TRUE(qr.pivots.equal(at::tensor({1, 2, 0, 3}, at::kLong)));
  EXPECT_TRUE(qr.r.equal(at::diag(at::tensor({5.0, 3.0, 1.0, 0.0}))));
}

TEST(PivotedQr, AgreesWithAProcessThatComputesEveryLength) {
  for (const auto& [m, n] : {std::pair{150, 100}, {100, 150}, {70, 70}}) {
    const Tensor a = gaussian(m, n, 3);
    const PivotedQr qr = pivoted_qr(a), wanted = by_gram_schmidt(a);
    EXPECT_TRUE(qr.pivots.equal(wanted.pivots)) << m << " x " << n;
    EXPECT_LT(largest(qr.r - wanted.r), 1e-11);
    EXPECT_LT(largest(qr.q - wanted.q), 1e-11);
  }
}

// The columns share all but 1e-9 of their length, so that downdated lengths are rounding errors.
TEST(PivotedQr, ComputesLengthsAgainThatCancel) {
  const Tensor common = gaussian(120, 1, 5);
  const Tensor a = common + 1e-9 * gaussian(120, 80, 6) * graded(80, 1e3);
  const PivotedQr qr = pivoted_qr(a);
  expect_pivoted_qr(a, qr);
  const Tensor r = by_gram_schmidt(a).r.diagonal(), ratio = qr.r.diagonal() / r;
  EXPECT_LT(largest(ratio.narrow(0, 0, 70) - 1), 1e-2);
}

TEST(PivotedQr, RevealsTheRankOfGradedMatrices) {
  const Tensor s = graded(60, 1e12);
  const PivotedQr qr = pivoted_qr(with_spectrum(100, 60, s, 7));
  const Tensor ratio = qr.r.diagonal() / s;
  EXPECT_GT(ratio.min().item<double>(), 0.1);
  EXPECT_LT(ratio.max().item<double>(), 10);
}

TEST(PivotedQr, FactorsDeficientZeroAndRepeatedColumns) {
  const Tensor deficient = at::mm(gaussian(90, 7, 8), gaussian(7, 50, 9));
  const PivotedQr qr = pivoted_qr(deficient);
  expect_pivoted_qr(deficient, qr);
  EXPECT_GT(qr.r[6][6].item<double>(), 1);
  EXPECT_LT(qr.r[7][7].item<double>(), 1e-12);
  const Tensor zero = at::zeros({40, 35}, at::kFloat);
  expect_pivoted_qr(zero, pivoted_qr(zero));
  EXPECT_TRUE(pivoted_qr(zero).pivots.equal(at::arange(35, at::kLong)));
  const Tensor ones = at::ones({50, 40}, at::kDouble);
  expect_pivoted_qr(ones, pivoted_qr(ones));
}

TEST(PivotedQr, ScalesWithItsInput) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor a = gaussian(60, 45, 10, type);
    const PivotedQr qr = pivoted_qr(a);
    for (const int exponent : {-120, -43, 43, 110}) {
      const double scale = std::ldexp(1.0, exponent);
      const PivotedQr other = pivoted_qr(a * scale);
      EXPECT_TRUE(other.pivots.equal(qr.pivots));
      EXPECT_LT(largest(other.r.to(at::kDouble) / scale - qr.r), type == at::kFloat ? 1e-4 : 1e-12)
          << exponent;
    }
    const double least = type == at::kFloat ? 1e-44 : 5e-323;
    const PivotedQr tiny = pivoted_qr(at::eye(3, type) * least);
    EXPECT_TRUE(tiny.r.equal(at::eye(3, type) * least));
  }
}

TEST(PivotedQr, ReadsAnyStridesAndWritesNothing) {
  const Tensor wide = gaussian(80, 120, 11), before = wide.clone();
  const Tensor strided = wide.slice(0, 0, 80, 2).slice(1, 3, 120, 3);
  const PivotedQr qr = pivoted_qr(strided), wanted = pivoted_qr(strided.contiguous());
  EXPECT_TRUE(qr.r.equal(wanted.r));
  EXPECT_TRUE(pivoted_qr(wide.t()).r.equal(pivoted_qr(wide.t().contiguous()).r));
  EXPECT_TRUE(wide.equal(before));
}

TEST(PivotedQr, FactorsEmptyMatrices) {
  for (const auto& [m, n] : {std::pair{0, 0}, {0, 4}, {4, 0}}) {
    const PivotedQr qr = pivoted_qr(at::zeros({m, n}));
    EXPECT_EQ(qr.q.sizes(), (std::vector<std::int64_t>{m, 0}));
    EXPECT_EQ(qr.r.sizes(), (std::vector<std::int64_t>{0, n}));
    EXPECT_TRUE(is_permutation(qr.pivots));
  }
}

TEST(PivotedQr, RefusesOtherInputInOneSentence) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, inf, -inf}) {
    Tensor a = gaussian(20, 10, 12);
    a[13][4] = bad;
    EXPECT_EQ(refusal([&] { pivoted_qr(a); }),
              "[pivoted_qr] The matrix has entries that are NaN or infinite.");
  }
  EXPECT_EQ(refusal([] { pivoted_qr({}); }), "[pivoted_qr] The matrix is an undefined tensor.");
  EXPECT_EQ(refusal([] {
              pivoted_qr(at::zeros({3, 2}, at::kLong));
            }),
            "[pivoted_qr] expected a matrix in float32 or float64, got Long");
  EXPECT_EQ(refusal([] {
              pivoted_qr(at::zeros({3, 2}, at::kHalf));
            }),
            "[pivoted_qr] expected a matrix in float32 or float64, got Half");
  EXPECT_EQ(refusal([] {
              pivoted_qr(at::zeros({3, 2, 1}));
            }),
            "[pivoted_qr] expected a matrix of 2 dimensions, got [3, 2, 1]");
  EXPECT_EQ(refusal([] {
              pivoted_qr(at::zeros({3, 2}).to_sparse());
            }),
            "[pivoted_qr] expected a dense matrix, got Sparse");
  EXPECT_EQ(refusal(
                [] {
                  pivoted_qr(at::zeros({3, 2}, at::kMeta));
                },
                ErrorCategory::Unsupported),
            "[pivoted_qr] expected a matrix on the CPU, as pivoting runs there only, got meta");
}

TEST(PivotedQr, TakesThePivotsOfLapack) {
  HONE_REQUIRE_PEER("numpy", "scipy");
  // Integers, which both read exactly.
  const Tensor a = (gaussian(90, 70, 13) * 1000).round();
  std::ostringstream numbers;
  for (Index i = 0; i < a.numel(); ++i) {
    numbers << (i > 0 ? "," : "") << a.view(-1)[i].item<Index>();
  }
  std::istringstream answer(
      run_peer("tests/train/linalg/pivoted_qr_scipy.py", {"90", "70", numbers.str()}));
  const PivotedQr qr = pivoted_qr(a);
  for (Index j = 0; j < 70; ++j) {
    Index pivot = -1;
    double size = -1;
    answer >> pivot >> size;
    EXPECT_EQ(qr.pivots[j].item<Index>(), pivot) << j;
    EXPECT_NEAR(qr.r[j][j].item<double>(), size, 1e-9 * size) << j;
  }
}

}  // namespace
}  // namespace hone::linalg
