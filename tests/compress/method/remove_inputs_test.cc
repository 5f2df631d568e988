// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/remove_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/core/thread/thread_pool.h"
#include "tests/compress/inputs.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

struct Problem {
  Index rows, cols;
  std::vector<float> x, w;
  kernels::Gram gram;

  Problem(Index rows_, Index cols_, Index count = 400)
      : rows(rows_),
        cols(cols_),
        x(correlated(count, cols, 1)),
        w(normals(rows * cols, 2)),
        gram(gram_of(x, cols)) {}
  WeightMatrix matrix() const { return {w, rows, cols, "w"}; }
  Removal remove(const RemovalOptions& options, Executor& executor = serial_executor()) const {
    return remove_inputs(gram, matrix(), options, executor);
  }
};

// Σ over rows of ‖x (w - w')‖², with the weights of columns that are gone as 0.
double loss_of(const Problem& p, const std::vector<Index>& kept,
               const std::vector<double>& weights) {
  double total = 0;
  for (Index row = 0; row < p.rows; ++row) {
    std::vector<double> change;
    for (Index col = 0; col < p.cols; ++col)
      change.push_back(p.w[static_cast<std::size_t>(row * p.cols + col)]);
    for (std::size_t k = 0; k < kept.size(); ++k)
      change[static_cast<std::size_t>(kept[k])] -=
          weights[static_cast<std::size_t>(row) * kept.size() + k];
    for (std::size_t at = 0; at < p.x.size(); at += static_cast<std::size_t>(p.cols)) {
      double sum = 0;
      for (std::size_t c = 0; c < change.size(); ++c)
        sum += change[c] * static_cast<double>(p.x[at + c]);
      total += sum * sum;
    }
  }
  return total;
}

// W' = W (H + D)_:P ((H + D)_PP)⁻¹ with D = damp diag(H), in plain loops.
std::vector<double> refit(const Problem& p, const std::vector<Index>& kept, double damp) {
  const auto m = std::ssize(kept);
  std::vector<double> block(static_cast<std::size_t>(m * m));
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < m; ++j)
      block[static_cast<std::size_t>(i * m + j)] =
          p.gram(kept[static_cast<std::size_t>(i)], kept[static_cast<std::size_t>(j)]) *
          (i == j ? 1 + damp : 1);
  const std::vector<double> inverse = inverse_of(block, m);
  std::vector<double> out(static_cast<std::size_t>(p.rows * m));
  for (Index row = 0; row < p.rows; ++row) {
    std::vector<double> right(static_cast<std::size_t>(m));
    for (Index i = 0; i < m; ++i) {
      const Index col = kept[static_cast<std::size_t>(i)];
      right[static_cast<std::size_t>(i)] =
          damp * p.gram(col, col) *
          static_cast<double>(p.w[static_cast<std::size_t>(row * p.cols + col)]);
      for (Index k = 0; k < p.cols; ++k)
        right[static_cast<std::size_t>(i)] +=
            static_cast<double>(p.w[static_cast<std::size_t>(row * p.cols + k)]) * p.gram(k, col);
    }
    for (Index i = 0; i < m; ++i)
      for (Index k = 0; k < m; ++k)
        out[static_cast<std::size_t>(row * m + i)] +=
            right[static_cast<std::size_t>(k)] * inverse[static_cast<std::size_t>(k * m + i)];
  }
  return out;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST(RemoveInputs, refits_what_remains) {
  const Problem p(10, 48);
  for (const RemovalOptions& options :
       {RemovalOptions{.removed = 13}, RemovalOptions{.unit = 4, .groups = 3, .removed = 2}}) {
    const Removal out = p.remove(options);
    const Index gone = options.unit * options.groups * options.removed;
    ASSERT_EQ(std::ssize(out.kept), p.cols - gone);
    EXPECT_TRUE(std::ranges::is_sorted(out.kept));
    const std::vector<double> want = refit(p, out.kept, 0.3);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(out.weights[i], want[i], 1e-4 * (1 + std::abs(want[i])));
    std::vector<double> bare;
    for (Index row = 0; row < p.rows; ++row)
      for (const Index col : out.kept)
        bare.push_back(p.w[static_cast<std::size_t>(row * p.cols + col)]);
    const double size = loss_of(p, {}, {});
    EXPECT_NEAR(out.error, loss_of(p, out.kept, wide(out.weights)) / size, 1e-5);
    EXPECT_NEAR(out.error_unrepaired, loss_of(p, out.kept, bare) / size, 1e-5);
    EXPECT_LT(out.error, 0.8 * out.error_unrepaired);
  }
}

// With one unit to go, the choice and its loss are those of trying each.
TEST(RemoveInputs, takes_the_column_that_trying_all_would_take) {
  const Problem p(6, 20);
  Index best = -1;
  double least = 1e300;
  for (Index col = 0; col < p.cols; ++col) {
    std::vector<Index> kept(static_cast<std::size_t>(p.cols));
    std::iota(kept.begin(), kept.end(), Index{0});
    kept.erase(kept.begin() + col);
    const double loss = loss_of(p, kept, refit(p, kept, 1e-6));
    if (loss < least) least = loss, best = col;
  }
  const Removal out = p.remove({.removed = 1, .damp = 1e-6});
  EXPECT_FALSE(std::ranges::binary_search(out.kept, best));
  EXPECT_NEAR(out.error * loss_of(p, {}, {}) / least, 1, 1e-3);
}

TEST(RemoveInputs, without_repair_leaves_out_the_least_energy) {
  const Problem p(6, 24);
  const Removal out = p.remove({.removed = 8, .repair = false});
  std::vector<double> energies;
  for (Index col = 0; col < p.cols; ++col) {
    double squares = 0;
    for (Index row = 0; row < p.rows; ++row)
      squares +=
          std::pow(static_cast<double>(p.w[static_cast<std::size_t>(row * p.cols + col)]), 2);
    energies.push_back(squares * p.gram(col, col));
  }
  std::vector<double> sorted = energies;
  std::ranges::sort(sorted);
  for (Index col = 0; col < p.cols; ++col)
    EXPECT_EQ(std::ranges::binary_search(out.kept, col),
              energies[static_cast<std::size_t>(col)] >= sorted[8]);
  for (std::size_t k = 0; k < out.kept.size(); ++k)
    EXPECT_EQ(out.weights[k], p.w[static_cast<std::size_t>(out.kept[k])]);
  EXPECT_EQ(out.error, out.error_unrepaired);
}

TEST(RemoveInputs, takes_as_many_units_of_each_group) {
  const Problem p(6, 48);
  const Removal out = p.remove({.unit = 4, .groups = 3, .removed = 1});
  std::vector<Index> counts(3);
  for (const Index col : out.kept) ++counts[static_cast<std::size_t>(col / 16)];
  EXPECT_EQ(counts, (std::vector<Index>{12, 12, 12}));
  for (std::size_t k = 0; k < out.kept.size(); k += 4) EXPECT_EQ(out.kept[k] % 4, 0);
}

TEST(RemoveInputs, never_fails_for_finite_inputs) {
  for (const Index cols : {16, 64}) {
    Problem p(5, cols, 3);  // rank 3
    const std::vector<float> zeros(static_cast<std::size_t>(2 * cols));
    kernels::Gram none = gram_of(zeros, cols);
    for (const kernels::Gram* gram : {&p.gram, &none}) {
      for (const double damp : {0.0, 0.01}) {
        const Removal out = remove_inputs(*gram, p.matrix(), {.removed = cols / 2, .damp = damp},
                                          serial_executor());
        EXPECT_EQ(std::ssize(out.kept), cols / 2);
        for (const float value : out.weights) ASSERT_TRUE(std::isfinite(value));
      }
    }
  }
}

TEST(RemoveInputs, is_the_same_for_any_number_of_threads) {
  const Problem p(40, 96);
  ThreadPool pool(3);
  const Removal one = p.remove({.removed = 30}), many = p.remove({.removed = 30}, pool);
  EXPECT_EQ(one.kept, many.kept);
  EXPECT_EQ(one.weights, many.weights);
  EXPECT_EQ(one.error, many.error);
}

TEST(RemoveInputs, refuses_what_does_not_fit) {
  const Problem p(4, 24);
  EXPECT_THAT(hone::test::refusal([&] { p.remove({.unit = 5, .removed = 1}); }),
              testing::HasSubstr("units"));
  EXPECT_THAT(hone::test::refusal([&] { p.remove({.removed = 24}); }), testing::HasSubstr("fewer"));
}

}  // namespace
}  // namespace hone::compress
