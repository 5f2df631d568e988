// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/low_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hone/core/thread/thread_pool.h"
#include "tests/compress/inputs.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

ChooseRank fixed(Index rank) {
  return [rank](std::span<const double>) { return rank; };
}

// W - B A.
std::vector<float> residual(const std::vector<float>& w, const ThinFactors& f, Index rows,
                            Index cols) {
  std::vector<float> out(w);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j) {
      double sum = 0;
      for (Index r = 0; r < f.rank; ++r)
        sum += static_cast<double>(f.b[static_cast<std::size_t>(i * f.rank + r)]) *
               static_cast<double>(f.a[static_cast<std::size_t>(r * cols + j)]);
      out[static_cast<std::size_t>(i * cols + j)] -= static_cast<float>(sum);
    }
  return out;
}

// Σ over rows of δ H δᵀ.
double energy(const std::vector<float>& rows, const kernels::Gram& gram) {
  const Index cols = gram.cols();
  double sum = 0;
  for (Index row = 0; row < std::ssize(rows) / cols; ++row)
    for (Index i = 0; i < cols; ++i)
      for (Index j = 0; j < cols; ++j)
        sum += static_cast<double>(rows[static_cast<std::size_t>(row * cols + i)]) *
               static_cast<double>(rows[static_cast<std::size_t>(row * cols + j)]) * gram(i, j);
  return sum;
}

double squares(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += std::pow(static_cast<double>(value), 2);
  return sum;
}

TEST(LowRank, loses_what_the_singular_values_say) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{20, 36}, {36, 20}, {24, 24}}) {
    const auto w = normals(rows * cols, 1), x = correlated(200, cols, 2);
    const kernels::Gram gram = gram_of(x, cols);
    const WeightMatrix matrix{w, rows, cols, "w"};
    double last = 1;
    for (const Index rank : {1, 5, 12, 20}) {
      const ThinFactors plain = factor_matrix(matrix, nullptr, fixed(rank), serial_executor());
      const ThinFactors white = factor_matrix(matrix, &gram, fixed(rank), serial_executor());
      const auto plain_rest = residual(w, plain, rows, cols),
                 white_rest = residual(w, white, rows, cols);
      EXPECT_NEAR(squares(plain_rest) / squares(w), plain.loss, 1e-6);
      const double error = energy(white_rest, gram) / energy(w, gram);
      EXPECT_NEAR(error, white.loss, 1e-5);
      EXPECT_LE(error, energy(plain_rest, gram) / energy(w, gram) + 1e-9);
      EXPECT_LE(squares(plain_rest), squares(white_rest) + 1e-6);
      EXPECT_LT(white.loss, last);
      last = white.loss;
    }
  }
}

// Singular values that are known: W = Σ σ_i u_i v_iᵀ with columns of cosines, which are orthogonal.
TEST(LowRank, finds_known_singular_values) {
  const Index rows = 12, cols = 30;
  const auto wave = [](Index n, Index k, Index i) {
    const double angle = std::acos(-1.0) * (static_cast<double>(i) + 0.5) * static_cast<double>(k);
    return std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
           std::cos(angle / static_cast<double>(n));
  };
  std::vector<float> w(static_cast<std::size_t>(rows * cols));
  for (Index k = 0; k < 6; ++k)
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < cols; ++j)
        w[static_cast<std::size_t>(i * cols + j)] += static_cast<float>(
            std::pow(2.0, static_cast<double>(-k)) * wave(rows, k, i) * wave(cols, k, j));
  std::vector<double> seen;
  factor_matrix(
      {w, rows, cols, "w"}, nullptr,
      [&](std::span<const double> values) {
        seen.assign(values.begin(), values.end());
        return Index{1};
      },
      serial_executor());
  for (std::size_t k = 0; k < 6; ++k)
    EXPECT_NEAR(seen[k], std::pow(4.0, -static_cast<double>(k)), 1e-6) << k;
  EXPECT_NEAR(seen[6], 0, 1e-6);
}

// More text changes neither factor's size.
TEST(LowRank, has_factors_of_like_size_for_any_number_of_tokens) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{40, 24}, {24, 40}}) {
    const auto w = normals(rows * cols, 1);
    for (const Index tokens : {100, 20000}) {
      const kernels::Gram gram = gram_of(normals(tokens * cols, 2), cols);
      const ThinFactors f = factor_matrix({w, rows, cols, "w"}, &gram, fixed(8), serial_executor());
      const double a = squares(f.a) / static_cast<double>(f.a.size()),
                   b = squares(f.b) / static_cast<double>(f.b.size());
      EXPECT_NEAR(a / b, 1, 0.2);
      EXPECT_LT(std::max(a, b), 30);
    }
  }
}

// No small change of the factors makes the error of the outputs smaller.
TEST(LowRank, is_the_best_of_its_rank) {
  const Index rows = 18, cols = 24, rank = 6;
  const auto w = normals(rows * cols, 3);
  const kernels::Gram gram = gram_of(correlated(300, cols, 4), cols);
  const ThinFactors best =
      factor_matrix({w, rows, cols, "w"}, &gram, fixed(rank), serial_executor());
  const double least = energy(residual(w, best, rows, cols), gram);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    ThinFactors other = best;
    const auto da = normals(rank * cols, 100 + seed), db = normals(rows * rank, 200 + seed);
    for (std::size_t i = 0; i < da.size(); ++i) other.a[i] *= 1 + 0.01f * da[i];
    for (std::size_t i = 0; i < db.size(); ++i) other.b[i] *= 1 + 0.01f * db[i];
    EXPECT_GE(energy(residual(w, other, rows, cols), gram), least);
  }
}

TEST(LowRank, never_fails_for_finite_inputs_and_does_not_depend_on_threads) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{16, 40}, {40, 16}}) {
    const auto w = normals(rows * cols, 5);
    const std::vector<float> zeros(static_cast<std::size_t>(2 * cols));
    for (const kernels::Gram& gram : {gram_of(zeros, cols), gram_of(normals(cols, 6), cols)}) {
      ThreadPool pool(3);
      const ThinFactors one =
          factor_matrix({w, rows, cols, "w"}, &gram, fixed(8), serial_executor());
      const ThinFactors many = factor_matrix({w, rows, cols, "w"}, &gram, fixed(8), pool);
      for (const float value : one.a) ASSERT_TRUE(std::isfinite(value));
      EXPECT_EQ(one.a, many.a);
      EXPECT_EQ(one.b, many.b);
    }
  }
  std::vector<float> bad = normals(16, 5);
  bad[3] = std::nanf("");
  EXPECT_THAT(hone::test::refusal(
                  [&] {
                    factor_matrix({bad, 4, 4, "layer"}, nullptr, fixed(2), serial_executor());
                  },
                  ErrorCategory::CorruptFile),
              testing::HasSubstr("[layer]"));
}

}  // namespace
}  // namespace hone::compress
