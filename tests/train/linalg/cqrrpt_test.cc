// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/cqrrpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/error_of.h"
#include "tests/train/linalg/matrices.h"

namespace hone::linalg {
namespace {

using namespace test;

// Checks a factorization of rank k; the residual is of the matrix, not of its best approximation.
void expect_cqrrpt(const Tensor& a, const PivotedQr& qr, Index k) {
  const bool is_f32 = a.scalar_type() == at::kFloat;
  ASSERT_EQ(qr.q.sizes(), (std::vector<std::int64_t>{a.size(0), k}));
  ASSERT_EQ(qr.r.sizes(), (std::vector<std::int64_t>{k, a.size(1)}));
  EXPECT_EQ(qr.q.scalar_type(), a.scalar_type());
  EXPECT_TRUE(is_permutation(qr.pivots));
  EXPECT_TRUE(is_upper(qr.r));
  EXPECT_TRUE(qr.r.diagonal().gt(0).all().item<bool>());
  const auto n = static_cast<double>(std::max<Index>(a.size(1), 8));
  EXPECT_LT(orthogonality(qr.q), is_f32 ? 1e-6 * std::sqrt(n) * 4 : 1e-12 * n);
  EXPECT_LT(qr_residual(a, qr.q, qr.r, qr.pivots), is_f32 ? 5e-6 : 1e-13);
}

TEST(Cqrrpt, IsOrthonormalAndExactForEveryConditionShapeAndSketch) {
  constexpr Index kCols = 40;
  for (const double condition : {1.0, 1e3, 1e6, 1e9, 1e12}) {
    for (const double ratio : {1.0, 1.5, 10.0, 50.0}) {
      const auto rows = static_cast<Index>(ratio * kCols);
      const Tensor a = with_spectrum(rows, kCols, graded(kCols, condition), 1);
      for (const double gamma : {1.0, 1.25, 1.5, 2.0, 4.0}) {
        SCOPED_TRACE(c10::str("condition ", condition, ", rows ", rows, ", gamma ", gamma));
        expect_cqrrpt(a, cqrrpt(a, {.gamma = gamma}), kCols);
      }
    }
  }
}

// Blocks of the triangular solve and of the Gram matrix begin within these.
TEST(Cqrrpt, FactorsMatricesOfManyBlocks) {
  const Tensor a = with_spectrum(1500, 390, graded(390, 1e8), 2);
  expect_cqrrpt(a, cqrrpt(a), 390);
}

// Libraries whose threshold for the ratio of the Cholesky factor's diagonal is 2.9 in f32 find
// ranks of 44 to 46 in the first, and of 58 to 61 in the second.
TEST(Cqrrpt, KeepsTheFullRankOfGaussianMatricesInF32) {
  for (const auto& [m, n] : {std::pair{1000, 50}, {8192, 64}}) {
    const Tensor a = gaussian(m, n, 3, at::kFloat);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(c10::str(m, " x ", n, ", seed ", seed));
      expect_cqrrpt(a, cqrrpt(a, {.seed = seed}), n);
    }
  }
}

TEST(Cqrrpt, FindsTheRankAtEveryScale) {
  for (const double scale : {1e-13, 1.0, 1e13}) {
    const Tensor exact = at::mm(gaussian(500, 7, 4), gaussian(7, 40, 5)) * scale;
    expect_cqrrpt(exact, cqrrpt(exact), 7);
    const Tensor a = gaussian(500, 40, 6, at::kFloat) * scale;
    expect_cqrrpt(a, cqrrpt(a), 40);
    // Two columns, repeated: nothing is rounded.
    const Tensor repeated = a.narrow(1, 0, 2).repeat({1, 9});
    expect_cqrrpt(repeated, cqrrpt(repeated), 2);
  }
  const Tensor a = gaussian(300, 20, 7);
  const double least = 1e-300, most = 1e300;
  expect_cqrrpt(
      a, PivotedQr{cqrrpt(a * least).q, cqrrpt(a * least).r / least, cqrrpt(a * least).pivots}, 20);
  expect_cqrrpt(
      a, PivotedQr{cqrrpt(a * most).q, cqrrpt(a * most).r / most, cqrrpt(a * most).pivots}, 20);
}

TEST(Cqrrpt, RevealsTheRankAsPivotedQrDoes) {
  const Tensor s = graded(60, 1e10), a = with_spectrum(900, 60, s, 8);
  const Tensor diagonal = cqrrpt(a).r.diagonal();
  EXPECT_GT((diagonal / s).min().item<double>(), 0.1);
  EXPECT_LT((diagonal / s).max().item<double>(), 10);
  const Tensor pivoted = diagonal / pivoted_qr(a).r.diagonal();
  EXPECT_GT(pivoted.min().item<double>(), 0.1);
  EXPECT_LT(pivoted.max().item<double>(), 10);
}

TEST(Cqrrpt, PivotsAWideMatrixItself) {
  const Tensor a = gaussian(30, 80, 9);
  const PivotedQr qr = cqrrpt(a), wanted = pivoted_qr(a);
  expect_cqrrpt(a, qr, 30);
  EXPECT_TRUE(qr.pivots.equal(wanted.pivots));
  EXPECT_TRUE(qr.r.equal(wanted.r));
  const Tensor deficient = at::mm(gaussian(30, 4, 10), gaussian(4, 80, 11));
  expect_cqrrpt(deficient, cqrrpt(deficient), 4);
}

TEST(Cqrrpt, FindsRankZeroInZeroAndEmptyMatrices) {
  for (const auto& [m, n] : {std::pair{300, 20}, {20, 20}, {10, 20}, {0, 5}, {5, 0}, {0, 0}}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const PivotedQr qr = cqrrpt(at::zeros({m, n}, type));
      EXPECT_EQ(qr.q.sizes(), (std::vector<std::int64_t>{m, 0}));
      EXPECT_EQ(qr.r.sizes(), (std::vector<std::int64_t>{0, n}));
      EXPECT_TRUE(is_permutation(qr.pivots));
    }
  }
}

// All of A is in rows that few entries of the sketch meet, and in one column.
TEST(Cqrrpt, FactorsMatricesOfFewNonzeros) {
  Tensor a = at::zeros({2000, 30}, at::kDouble);
  a.narrow(0, 700, 30).copy_(at::diag(graded(30, 1e6)));
  expect_cqrrpt(a, cqrrpt(a), 30);
  Tensor one = at::zeros({2000, 30}, at::kDouble);
  one[5][17] = -3;
  const PivotedQr qr = cqrrpt(one);
  expect_cqrrpt(one, qr, 1);
  EXPECT_EQ(qr.pivots[0].item<Index>(), 17);
  EXPECT_NEAR(qr.r[0][0].item<double>(), 3, 1e-14);
}

// Where two equal rows that hold nearly all of A cancel in its sketch, this is well conditioned,
// but A is not.
TEST(Cqrrpt, FactorsWhatItsSketchMisses) {
  Tensor a = gaussian(100, 2, 16);
  a.narrow(0, 0, 2).fill_(1e9);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const PivotedQr qr = cqrrpt(a, {.seed = seed});
    EXPECT_EQ(qr.r.size(1), 2);
    EXPECT_LT(orthogonality(qr.q), 1e-11);
    // A rank of 1 leaves out what is 1e-8 of A.
    EXPECT_LT(qr_residual(a, qr.q, qr.r, qr.pivots), qr.q.size(1) == 2 ? 1e-13 : 1e-7);
  }
}

TEST(Cqrrpt, IsAFunctionOfItsSeed) {
  const Tensor a = gaussian(700, 40, 12);
  const Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const PivotedQr first = cqrrpt(a, {.seed = 5}), again = cqrrpt(a, {.seed = 5});
  EXPECT_TRUE(first.q.equal(again.q));
  EXPECT_TRUE(first.r.equal(again.r));
  EXPECT_FALSE(first.r.equal(cqrrpt(a, {.seed = 6}).r));
  EXPECT_TRUE(at::globalContext().defaultGenerator(at::kCPU).get_state().equal(state));
}

TEST(Cqrrpt, ReadsAnyStridesAndKeepsNoGradient) {
  const Tensor wide = gaussian(60, 900, 13).requires_grad_(), a = wide.t().slice(1, 0, 60, 2);
  const Tensor before = wide.detach().clone();
  const PivotedQr qr = cqrrpt(a);
  expect_cqrrpt(a.detach(), qr, 30);
  EXPECT_FALSE(qr.q.requires_grad() || qr.r.requires_grad());
  EXPECT_TRUE(wide.detach().equal(before));
}

TEST(Cqrrpt, RefusesOtherInputInOneSentence) {
  Tensor a = gaussian(100, 10, 14);
  a[50][3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(refusal([&] { cqrrpt(a); }),
            "[cqrrpt] The matrix has entries that are NaN or infinite.");
  const Tensor good = gaussian(100, 10, 14);
  EXPECT_EQ(refusal([&] { cqrrpt(good, {.gamma = 0.5}); }),
            "[cqrrpt] expected a finite gamma of at least 1, got 0.5");
  EXPECT_EQ(refusal([&] { cqrrpt(good, {.gamma = std::nan("")}); }),
            "[cqrrpt] expected a finite gamma of at least 1, got nan");
  EXPECT_EQ(refusal([&] { cqrrpt(good, {.nonzeros = 0}); }),
            "[cqrrpt] expected at least 1 nonzero, got 0");
  EXPECT_EQ(refusal([&] { cqrrpt(good.to(at::kBFloat16)); }),
            "[cqrrpt] expected a matrix in float32 or float64, got BFloat16");
  EXPECT_EQ(refusal([&] { cqrrpt(good[0]); }),
            "[cqrrpt] expected a matrix of 2 dimensions, got [10]");
  EXPECT_EQ(refusal(
                [&] {
                  cqrrpt(at::zeros({9, 2}, at::kMeta));
                },
                ErrorCategory::Unsupported),
            "[cqrrpt] expected a matrix on the CPU, as pivoting runs there only, got meta");
}

TEST(Cqrrpt, TakesMoreNonzerosThanRows) {
  const Tensor a = gaussian(50, 3, 15);
  expect_cqrrpt(a, cqrrpt(a, {.nonzeros = 100}), 3);
}

}  // namespace
}  // namespace hone::linalg
