// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/lstsq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/error_of.h"
#include "tests/train/linalg/matrices.h"

namespace hone::linalg {
namespace {

using namespace test;

// |A^T (A x - b)| / (|A| |A x - b|), 0 at the minimum.
double slope(const Tensor& a, const Tensor& b, const Tensor& x) {
  const Tensor exact = a.to(at::kDouble);
  const Tensor rest = at::matmul(exact, x.to(at::kDouble)) - b.to(at::kDouble);
  return frobenius(at::matmul(exact.t(), rest)) / (frobenius(exact) * frobenius(rest));
}

Tensor by_lapack(const Tensor& a, const Tensor& b) {
  return std::get<0>(at::linalg_lstsq(a, b.unsqueeze(1), std::nullopt, "gelsd")).squeeze(1);
}

TEST(LstsqSketched, AgreesWithLapackUpToTheCondition) {
  for (const double condition : {1.0, 1e4, 1e8}) {
    const Tensor a = with_spectrum(1200, 50, graded(50, condition), 1);
    const Tensor b = gaussian(1200, 1, 2).squeeze(1);
    const LstsqResult result = lstsq_sketched(a, b);
    EXPECT_TRUE(result.has_converged);
    EXPECT_EQ(result.rank, 50);
    EXPECT_LT(result.iterations, 80);
    const Tensor wanted = by_lapack(a, b);
    EXPECT_LT(frobenius(result.x - wanted) / frobenius(wanted), 1e-13 * condition + 1e-13);
    // As of a solution that is exact for a matrix and a right-hand side rounded to f64.
    const double share = frobenius(a) * frobenius(result.x) / frobenius(b);
    EXPECT_LT(slope(a, b, result.x), 1e-13 + 1e-14 * share) << condition;
  }
}

TEST(LstsqSketched, RecoversTheSolutionOfConsistentSystems) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor a = gaussian(900, 40, 3, type), wanted = gaussian(40, 3, 4, type);
    const LstsqResult result = lstsq_sketched(a, at::mm(a, wanted));
    EXPECT_TRUE(result.has_converged);
    EXPECT_EQ(result.x.sizes(), wanted.sizes());
    EXPECT_EQ(result.x.scalar_type(), type);
    EXPECT_LT(largest(result.x - wanted), type == at::kFloat ? 2e-6 : 1e-13);
  }
}

TEST(LstsqSketched, MinimizesForEachRightHandSideOnItsOwn) {
  const Tensor a = with_spectrum(600, 30, graded(30, 1e3), 5), b = gaussian(600, 4, 6);
  b.select(1, 2).zero_();
  const Tensor x = lstsq_sketched(a, b).x;
  for (const Index column : {0, 1, 3}) {
    EXPECT_LT(slope(a, b.select(1, column), x.select(1, column)), 1e-13);
  }
  EXPECT_EQ(largest(x.select(1, 2)), 0);
}

TEST(LstsqSketched, FindsABasicSolutionOfADeficientSystem) {
  const Tensor a = at::mm(gaussian(700, 6, 7), gaussian(6, 30, 8)), b = gaussian(700, 1, 9);
  const LstsqResult result = lstsq_sketched(a, b);
  EXPECT_EQ(result.rank, 6);
  EXPECT_EQ(result.x.count_nonzero().item<Index>(), 6);
  EXPECT_LT(slope(a, b, result.x), 1e-13);
}

TEST(LstsqSketched, SolvesWideSystemsExactly) {
  const Tensor a = gaussian(20, 60, 10), b = gaussian(20, 1, 11);
  const LstsqResult result = lstsq_sketched(a, b);
  EXPECT_EQ(result.rank, 20);
  EXPECT_LT(frobenius(at::mm(a, result.x) - b) / frobenius(b), 1e-13);
}

TEST(LstsqSketched, KeepsTheScalesOfBothSides) {
  const Tensor a = gaussian(500, 20, 12), b = gaussian(500, 1, 13);
  const Tensor wanted = lstsq_sketched(a, b).x;
  for (const double scale : {1e-13, 1e13, 1e-200, 1e200}) {
    EXPECT_LT(frobenius(lstsq_sketched(a * scale, b).x * scale - wanted), 1e-12);
    EXPECT_LT(frobenius(lstsq_sketched(a, b * scale).x / scale - wanted), 1e-12);
  }
}

TEST(LstsqSketched, TakesZeroAndEmptySystems) {
  EXPECT_EQ(largest(lstsq_sketched(at::zeros({90, 5}), at::ones(90)).x), 0);
  EXPECT_EQ(lstsq_sketched(at::zeros({90, 5}), at::ones(90)).rank, 0);
  EXPECT_EQ(lstsq_sketched(at::zeros({0, 5}), at::zeros(0)).x.numel(), 5);
  EXPECT_EQ(lstsq_sketched(at::zeros({7, 0}), at::ones(7)).x.numel(), 0);
  EXPECT_EQ(lstsq_sketched(at::ones({7, 2}), at::ones({7, 0})).x.sizes(),
            (std::vector<std::int64_t>{2, 0}));
}

TEST(LstsqSketched, SaysWhereItHasNotConverged) {
  const LstsqResult result =
      lstsq_sketched(gaussian(900, 40, 14), gaussian(900, 1, 15), {.max_iterations = 2});
  EXPECT_FALSE(result.has_converged);
  EXPECT_EQ(result.iterations, 2);
}

TEST(LstsqSketched, RefusesOtherInputInOneSentence) {
  const Tensor a = gaussian(30, 4, 16), b = gaussian(30, 1, 17);
  EXPECT_EQ(refusal([&] { lstsq_sketched(a, {}); }),
            "[lstsq_sketched] The right-hand side is an undefined tensor.");
  EXPECT_EQ(refusal([&] { lstsq_sketched(a, b.narrow(0, 0, 29)); }),
            "[lstsq_sketched] expected a right-hand side of 30 rows, got 29");
  EXPECT_EQ(refusal([&] { lstsq_sketched(a, b.to(at::kFloat)); }),
            "[lstsq_sketched] expected a right-hand side of the type Double, got Float");
  EXPECT_EQ(refusal([&] { lstsq_sketched(a, b * std::numeric_limits<double>::infinity()); }),
            "[lstsq_sketched] The right-hand side has entries that are NaN or infinite.");
  EXPECT_EQ(refusal([&] { lstsq_sketched(a, b, {.max_iterations = 0}); }),
            "[lstsq_sketched] expected at least 1 iteration, got 0");
  EXPECT_EQ(refusal([&] { lstsq_sketched(a.to(at::kFloat) * 1e-30, b.to(at::kFloat) * 1e30); }),
            "[lstsq_sketched] The result is beyond the range of Float.");
}

}  // namespace
}  // namespace hone::linalg
