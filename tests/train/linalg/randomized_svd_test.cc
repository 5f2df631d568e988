// SPDX-License-Identifier: Apache-2.0
#include "hone/train/linalg/randomized_svd.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/error_of.h"
#include "tests/train/linalg/matrices.h"

namespace hone::linalg {
namespace {

using namespace test;

Tensor rebuilt(const Svd& svd) {
  return at::mm(svd.u.to(at::kDouble) * svd.s.to(at::kDouble), svd.v.to(at::kDouble).t());
}

double error(const Tensor& a, const Svd& svd) {
  return frobenius(a.to(at::kDouble) - rebuilt(svd));
}

double tail(const Tensor& s, Index rank) { return frobenius(s.narrow(0, rank, s.numel() - rank)); }

void expect_svd(const Tensor& a, const Svd& svd, Index rank) {
  ASSERT_EQ(svd.u.sizes(), (std::vector<std::int64_t>{a.size(0), rank}));
  ASSERT_EQ(svd.v.sizes(), (std::vector<std::int64_t>{a.size(1), rank}));
  ASSERT_EQ(svd.s.numel(), rank);
  const double most = a.scalar_type() == at::kFloat ? 1e-5 : 1e-12;
  EXPECT_EQ(svd.u.scalar_type(), a.scalar_type());
  EXPECT_LT(orthogonality(svd.u), most);
  EXPECT_LT(orthogonality(svd.v), most);
  EXPECT_TRUE(svd.s.ge(0).all().item<bool>());
  if (rank == 0) return;
  EXPECT_TRUE(svd.s.equal(std::get<0>(svd.s.sort(0, /*descending=*/true))));
  const Tensor sizes = svd.u.abs();
  const Tensor largest_entry = svd.u.gather(0, sizes.argmax(0, true));
  EXPECT_TRUE(largest_entry.gt(0).all().item<bool>());
}

TEST(RandomizedSvd, RecoversMatricesOfExactRank) {
  for (const auto& [m, n] : {std::pair{200, 150}, {150, 200}, {90, 400}, {400, 90}}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(c10::str(m, " x ", n, " ", type));
      const Tensor s = graded(12, 100) * 5;
      const Tensor a = with_spectrum(m, n, s, 1).to(type);
      const Svd svd = randomized_svd(a, {.rank = 12});
      expect_svd(a, svd, 12);
      const double most = type == at::kFloat ? 1e-5 : 1e-12;
      EXPECT_LT(error(a, svd) / frobenius(a), most);
      EXPECT_LT(largest(svd.s.to(at::kDouble) - s), 5 * most);
    }
  }
}

TEST(RandomizedSvd, ApproximatesSmallMatricesAsThePublishedTestsOfItDo) {
  for (const auto& [m, n, rank] :
       {std::tuple{10, 10, 5}, {50, 20, 10}, {30, 60, 20}, {100, 10, 5}}) {
    const Tensor s = graded(rank, 2), a = with_spectrum(m, n, s, 2);
    const Svd svd = randomized_svd(a, {.rank = rank});
    expect_svd(a, svd, rank);
    EXPECT_LT(error(a, svd), std::pow(2.2e-16, 0.625));
  }
}

// Without more columns than the rank, the error of flat spectra is 1.04 times the least and more.
TEST(RandomizedSvd, IsNearlyAsGoodAsTheBestApproximation) {
  constexpr Index kSize = 500, kRank = 40;
  const Tensor j = at::arange(1, kSize + 1, at::kDouble);
  const Tensor gap = at::where(j.le(kRank), 1.0, 0.1);
  const Tensor rough = gaussian(kSize, kSize, 3);
  const std::pair<Tensor, double> cases[] = {
      {rough, 1.05},
      {with_spectrum(kSize, kSize, j.reciprocal(), 4), 1.02},
      {with_spectrum(kSize, kSize, j.rsqrt(), 5), 1.02},
      {with_spectrum(kSize, kSize, at::pow(0.95, j), 6), 1.02},
      {with_spectrum(kSize, kSize, gap, 7), 1.02},
  };
  for (const auto& [exact, most] : cases) {
    const double least = tail(at::linalg_svdvals(exact), kRank);
    for (const auto type : {at::kFloat, at::kDouble}) {
      const Tensor a = exact.to(type);
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        const Svd svd = randomized_svd(a, {.rank = kRank, .seed = seed});
        expect_svd(a, svd, kRank);
        EXPECT_LT(error(a, svd) / least, most) << type << " seed " << seed;
      }
    }
  }
}

// The bounds are those of Halko, Martinsson and Tropp, for any matrix.
TEST(RandomizedSvd, StaysBelowTheBoundsOfTheExpectedError) {
  const Tensor s = at::cat({at::ones(20, at::kDouble), 0.3 * at::ones(180, at::kDouble)});
  const Tensor a = with_spectrum(250, 200, s, 8);
  constexpr Index kRank = 20, kOversample = 5;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Svd svd =
        randomized_svd(a, {.rank = kRank, .oversample = kOversample, .power = 0, .seed = seed});
    sum += error(a, svd);
    const double spectral = at::linalg_svdvals(a - rebuilt(svd))[0].item<double>();
    EXPECT_LT(spectral, 0.3 * (1 + std::sqrt(20.0 / 4)) + std::exp(1) * 5 / 5 * tail(s, kRank));
  }
  EXPECT_LT(sum / 20, std::sqrt(1 + 20.0 / (kOversample - 1)) * tail(s, kRank));
}

TEST(RandomizedSvd, PowersApproachTheBestApproximation) {
  const Tensor a = gaussian(400, 300, 9);
  const double least = tail(at::linalg_svdvals(a), 30);
  double before = std::numeric_limits<double>::infinity();
  for (Index power = 0; power < 4; ++power) {
    const double now = error(a, randomized_svd(a, {.rank = 30, .power = power})) / least;
    EXPECT_LT(now, before);
    EXPECT_GE(now, 1 - 1e-12);
    before = now;
  }
  EXPECT_LT(before, 1.002);
}

// Columns of a basis that a Cholesky factorization cannot find, and singular values far below
// the roundoff of f32 times the first.
TEST(RandomizedSvd, StaysOrthonormalOnSteepSpectra) {
  for (const double condition : {1e4, 1e8, 1e14}) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE(c10::str("condition ", condition, " ", type));
      const Tensor s = graded(60, condition), a = with_spectrum(300, 260, s, 10).to(type);
      const Svd svd = randomized_svd(a, {.rank = 60});
      expect_svd(a, svd, 60);
      const double unit = type == at::kFloat ? 1.2e-7 : 2.3e-16;
      EXPECT_LT(error(a, svd), 100 * unit);
      EXPECT_LT(largest(svd.s.to(at::kDouble) - s), 50 * unit);
    }
  }
}

// A rule with an absolute threshold drops all of the small matrix, or keeps the noise of the large.
TEST(RandomizedSvd, ScalesWithItsInput) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const Tensor a = with_spectrum(150, 120, graded(120, 1e3), 11).to(type);
    const Svd svd = randomized_svd(a, {.rank = 15});
    const Svd within = randomized_svd(a, {.tolerance = 0.1, .block = 16});
    for (const double scale : {1e-13, 1e-8, 1e8, 1e13, type == at::kFloat ? 1e-30 : 1e-300}) {
      const Tensor other = a * scale;
      const Svd scaled = randomized_svd(other, {.rank = 15});
      const double most = type == at::kFloat ? 1e-5 : 1e-12;
      EXPECT_LT(largest(scaled.s.to(at::kDouble) / scale - svd.s), most) << scale;
      EXPECT_LT(largest(scaled.u - svd.u), 1e4 * most) << scale;
      EXPECT_EQ(randomized_svd(other, {.tolerance = 0.1, .block = 16}).s.numel(), within.s.numel());
    }
  }
}

TEST(RandomizedSvd, MeetsARelativeToleranceWithTheSmallestRank) {
  const Tensor s = graded(300, 1e10), a = with_spectrum(400, 300, s, 12);
  for (const double tolerance : {0.3, 1e-2, 1e-4, 1e-7}) {
    const Svd svd = randomized_svd(a, {.tolerance = tolerance, .block = 20});
    const Index rank = svd.s.numel();
    expect_svd(a, svd, rank);
    EXPECT_LE(error(a, svd) / frobenius(a), tolerance * (1 + 1e-8));
    Index best = 0;
    while (tail(s, best) > tolerance * frobenius(s)) ++best;
    EXPECT_GE(rank, best);
    EXPECT_LE(rank, best + 3) << tolerance;
  }
  const Tensor f32 = a.to(at::kFloat);
  const Svd svd = randomized_svd(f32, {.tolerance = 1e-3, .block = 20});
  EXPECT_LE(error(f32, svd) / frobenius(f32), 1.001e-3);
  EXPECT_EQ(randomized_svd(a, {.rank = 7, .tolerance = 1e-6, .block = 5}).s.numel(), 7);
  // No sketch meets this one.
  EXPECT_EQ(randomized_svd(gaussian(60, 50, 13), {.tolerance = 1e-14}).s.numel(), 50);
  EXPECT_EQ(randomized_svd(at::zeros({60, 50}), {.tolerance = 0.5, .block = 4}).s.numel(), 0);
}

TEST(RandomizedSvd, GivesOrthonormalVectorsOfAZeroMatrix) {
  for (const Index rank : {3, 70}) {
    const Tensor zero = at::zeros({80, 70});
    const Svd svd = randomized_svd(zero, {.rank = rank});
    expect_svd(zero, svd, rank);
    EXPECT_EQ(largest(svd.s), 0);
  }
  // A sketch of one entry has a single direction.
  Tensor one = at::zeros({80, 70}, at::kDouble);
  one[40][3] = -2;
  const Svd svd = randomized_svd(one, {.rank = 5});
  expect_svd(one, svd, 5);
  EXPECT_LT(error(one, svd), 1e-14);
}

TEST(RandomizedSvd, IsExactWhereTheRankIsThatOfTheSmallerSide) {
  for (const auto& [m, n] : {std::pair{30, 50}, {50, 30}}) {
    const Tensor a = gaussian(m, n, 14);
    for (const Index rank : {30, 31, 1000, 1 << 30}) {
      const Svd svd = randomized_svd(a, {.rank = rank});
      expect_svd(a, svd, 30);
      EXPECT_LT(error(a, svd) / frobenius(a), 1e-13);
    }
  }
  for (const auto& [m, n] : {std::pair{0, 5}, {5, 0}, {0, 0}}) {
    expect_svd(at::zeros({m, n}), randomized_svd(at::zeros({m, n}), {.rank = 2}), 0);
  }
}

TEST(RandomizedSvd, IsAFunctionOfItsSeed) {
  const Tensor a = gaussian(200, 150, 15);
  const Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const Svd first = randomized_svd(a, {.rank = 10, .seed = 4});
  const Svd again = randomized_svd(a, {.rank = 10, .seed = 4});
  EXPECT_TRUE(first.u.equal(again.u) && first.s.equal(again.s) && first.v.equal(again.v));
  EXPECT_FALSE(first.s.equal(randomized_svd(a, {.rank = 10, .seed = 5}).s));
  EXPECT_TRUE(at::globalContext().defaultGenerator(at::kCPU).get_state().equal(state));
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 1 ? 2 : 1);
  const Svd other = randomized_svd(a, {.rank = 10, .seed = 4});
  at::set_num_threads(threads);
  EXPECT_LT(largest(other.s - first.s), 1e-11);
  EXPECT_LT(largest(other.u - first.u), 1e-9);
}

TEST(RandomizedSvd, ReadsAnyStridesAndKeepsNoGradient) {
  const Tensor wide = gaussian(300, 240, 16).requires_grad_(), before = wide.detach().clone();
  const Tensor strided = wide.slice(0, 0, 300, 3).slice(1, 1, 240, 2).t();
  const Svd svd = randomized_svd(strided, {.rank = 8});
  const Svd wanted = randomized_svd(strided.contiguous(), {.rank = 8, .power = 3});
  expect_svd(strided.detach(), svd, 8);
  EXPECT_LT(error(strided.detach(), svd), 1.05 * error(strided.detach(), wanted));
  EXPECT_FALSE(svd.u.requires_grad() || svd.s.requires_grad());
  EXPECT_TRUE(wide.detach().equal(before));
  const Tensor row = gaussian(1, 90, 17).expand({70, 90});
  EXPECT_LT(error(row, randomized_svd(row, {.rank = 1})), 1e-10);
}

TEST(RandomizedSvd, RefusesOtherInputInOneSentence) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Tensor a = gaussian(40, 30, 18, at::kFloat);
    a[39][29] = bad;
    EXPECT_EQ(refusal([&] { randomized_svd(a, {.rank = 2}); }),
              "[randomized_svd] The matrix has entries that are NaN or infinite.");
  }
  EXPECT_EQ(refusal([&] {
              randomized_svd(at::zeros({9, 2}, at::kMeta), {.rank = 2});
            }),
            "[randomized_svd] expected a matrix with values, got one on the device meta");
  const Tensor a = gaussian(40, 30, 18);
  const auto message = [&](const RandomizedSvdOptions& options) {
    return refusal([&] { randomized_svd(a, options); });
  };
  EXPECT_EQ(message({}), "[randomized_svd] expected a rank of at least 1, or a tolerance, got 0");
  EXPECT_EQ(message({.rank = -1, .tolerance = 0.5}),
            "[randomized_svd] expected a rank of at least 1, or a tolerance, got -1");
  EXPECT_EQ(message({.rank = 2, .tolerance = 1}),
            "[randomized_svd] expected a tolerance in [0, 1), got 1");
  EXPECT_EQ(message({.tolerance = std::nan("")}),
            "[randomized_svd] expected a tolerance in [0, 1), got nan");
  EXPECT_NE(message({.rank = 2, .oversample = -1}), "");
  EXPECT_NE(message({.rank = 2, .power = -1}), "");
  EXPECT_NE(message({.tolerance = 0.5, .block = 0}), "");
  EXPECT_NE(message({.rank = std::numeric_limits<Index>::max()}), "");
  EXPECT_EQ(refusal([&] { randomized_svd(a.to(at::kHalf), {.rank = 2}); }),
            "[randomized_svd] expected a matrix in float32 or float64, got Half");
  EXPECT_EQ(refusal([&] { randomized_svd(a.to(at::kInt), {.rank = 2}); }),
            "[randomized_svd] expected a matrix in float32 or float64, got Int");
  EXPECT_EQ(refusal([&] {
              randomized_svd(a.view({40, 5, 6}), {.rank = 2});
            }),
            "[randomized_svd] expected a matrix of 2 dimensions, got [40, 5, 6]");
}

}  // namespace
}  // namespace hone::linalg
