// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hone/core/thread/thread_pool.h"
#include "tests/compress/inputs.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

using testing::HasSubstr;

// Σ over rows of ‖x (w - ŵ)‖² in plain loops.
double output_error(const std::vector<float>& x, const std::vector<float>& w,
                    const StoredMatrix& stored) {
  std::vector<float> decoded(w.size());
  decode(stored, decoded);
  const Index cols = stored.cols;
  double total = 0;
  for (Index row = 0; row < stored.rows; ++row) {
    for (std::size_t at = 0; at < x.size(); at += static_cast<std::size_t>(cols)) {
      double sum = 0;
      for (Index c = 0; c < cols; ++c) {
        const auto i = static_cast<std::size_t>(row * cols + c);
        sum += (static_cast<double>(w[i]) - static_cast<double>(decoded[i])) *
               static_cast<double>(x[at + static_cast<std::size_t>(c)]);
      }
      total += sum * sum;
    }
  }
  return total;
}

EncodedMatrix round_plain(const WeightFormat& format, const WeightMatrix& matrix,
                          std::span<const float> importance) {
  const auto scales = fit_matrix(format, matrix, importance, {}, serial_executor());
  return round_matrix(format, matrix, scales, serial_executor());
}

EncodedMatrix round_fed(const WeightFormat& format, const WeightMatrix& matrix,
                        const kernels::Gram& gram, const FeedbackOptions& options = {},
                        Executor& executor = serial_executor()) {
  const ErrorFeedback feedback(gram, options, "w", executor);
  const auto scales = fit_matrix(format, matrix, importance_of(gram), {}, executor);
  return round_with_feedback(format, matrix, scales, feedback, executor);
}

// The upper Cholesky factor U of (H + damping I)⁻¹ = Uᵀ U, as GPTQ and SparseGPT were published.
std::vector<double> published_factor(const kernels::Gram& gram, double damping) {
  const Index n = gram.cols();
  const std::vector<double> inverse = inverse_of(damped(gram, damping), n);
  std::vector<double> upper(inverse.size());
  const auto at = [n](Index i, Index j) { return static_cast<std::size_t>(i * n + j); };
  for (Index i = 0; i < n; ++i) {
    for (Index j = i; j < n; ++j) {
      double sum = inverse[at(i, j)];
      for (Index k = 0; k < i; ++k) sum -= upper[at(k, i)] * upper[at(k, j)];
      upper[at(i, j)] = i == j ? std::sqrt(sum) : sum / upper[at(i, i)];
    }
  }
  return upper;
}

// GPTQ as it was published: a column at a time.
std::vector<double> published(const WeightFormat& format, const WeightMatrix& matrix,
                              std::span<const BlockScales> scales, const kernels::Gram& gram,
                              double damping) {
  const Index n = matrix.cols;
  const std::vector<double> upper = published_factor(gram, damping);
  const auto at = [n](Index i, Index j) { return static_cast<std::size_t>(i * n + j); };
  std::vector<double> out(matrix.values.begin(), matrix.values.end());
  for (Index row = 0; row < matrix.rows; ++row) {
    double* w = out.data() + row * n;
    for (Index i = 0; i < n; ++i) {
      const Affine& affine = affine_at(format, scales, n, row, i);
      const double q = format.decode(affine, format.encode(affine, static_cast<float>(w[i])));
      const double error = (w[i] - q) / upper[at(i, i)];
      for (Index j = i + 1; j < n; ++j) w[j] -= error * upper[at(i, j)];
      w[i] = q;
    }
  }
  return out;
}

// SparseGPT as it was published: the mask of a block of columns by w² / U_jj², then a column at a
// time.
std::vector<double> published_pruning(const WeightMatrix& matrix, double sparsity,
                                      const kernels::Gram& gram, double damping, Index block) {
  const Index n = matrix.cols;
  const std::vector<double> upper = published_factor(gram, damping);
  const auto at = [n](Index i, Index j) { return static_cast<std::size_t>(i * n + j); };
  std::vector<double> out(matrix.values.begin(), matrix.values.end());
  for (Index first = 0; first < n; first += block) {
    const Index end = std::min(n, first + block);
    std::vector<double> scores;
    const auto score = [&](Index row, Index i) {
      return std::pow(out[at(row, i)] / upper[at(i, i)], 2);
    };
    for (Index row = 0; row < matrix.rows; ++row)
      for (Index i = first; i < end; ++i) scores.push_back(score(row, i));
    std::ranges::sort(scores);
    const double limit =
        scores[static_cast<std::size_t>(sparsity * static_cast<double>(scores.size()))];
    std::vector<std::uint8_t> goes(out.size());
    for (Index row = 0; row < matrix.rows; ++row)
      for (Index i = first; i < end; ++i) goes[at(row, i)] = score(row, i) < limit ? 1 : 0;
    for (Index row = 0; row < matrix.rows; ++row) {
      for (Index i = first; i < end; ++i) {
        if (goes[at(row, i)] == 0) continue;
        const double error = out[at(row, i)] / upper[at(i, i)];
        for (Index j = i; j < n; ++j) out[at(row, j)] -= error * upper[at(i, j)];
        out[at(row, i)] = 0;
      }
    }
  }
  return out;
}

TEST(Gptq, equals_the_published_algorithm) {
  const Index rows = 9, cols = 160;
  const auto x = correlated(300, cols, 1), w = normals(rows * cols, 9);
  const kernels::Gram gram = gram_of(x, cols);
  const auto format = parse_weight_format("int3:g32:sym");
  const WeightMatrix matrix{w, rows, cols, "w"};
  const ErrorFeedback feedback(gram, {.act_order = false}, "w", serial_executor());
  const auto scales = fit_matrix(*format, matrix, {}, {}, serial_executor());
  const EncodedMatrix got =
      round_with_feedback(*format, matrix, scales, feedback, serial_executor());
  const std::vector<double> want = published(*format, matrix, scales, gram, feedback.damping());
  std::vector<float> decoded(w.size());
  decode(got.stored, decoded);
  Index same = 0;
  for (std::size_t i = 0; i < w.size(); ++i) same += std::abs(decoded[i] - want[i]) < 1e-5 ? 1 : 0;
  EXPECT_GE(same, rows * cols - 3);  // a tie that rounds the other way changes later columns
}

TEST(SparseGpt, equals_the_published_algorithm) {
  const Index rows = 12, cols = 320;  // two and a half blocks
  const auto x = correlated(600, cols, 1), w = normals(rows * cols, 9);
  const kernels::Gram gram = gram_of(x, cols);
  const WeightMatrix matrix{w, rows, cols, "w"};
  const ErrorFeedback feedback(gram, {.act_order = false}, "w", serial_executor());
  for (const double sparsity : {0.25, 0.5, 0.75}) {
    const auto got = prune_with_feedback(matrix, sparsity, feedback, serial_executor());
    const auto want = published_pruning(matrix, sparsity, gram, feedback.damping(), 128);
    EXPECT_EQ(std::ranges::count(got, 0.0f), std::lround(sparsity * rows * cols));
    Index same = 0;
    for (std::size_t i = 0; i < got.size(); ++i) same += std::abs(got[i] - want[i]) < 1e-5 ? 1 : 0;
    EXPECT_GE(same, rows * cols - 3) << sparsity;
  }
}

TEST(SparseGpt, loses_less_of_the_outputs_than_leaving_weights_out) {
  const Index rows = 16, cols = 192;
  const auto x = correlated(500, cols, 2), w = normals(rows * cols, 3);
  const kernels::Gram gram = gram_of(x, cols);
  const WeightMatrix matrix{w, rows, cols, "w"};
  const ErrorFeedback feedback(gram, {.act_order = false}, "w", serial_executor());
  const std::vector<float> pruned = prune_with_feedback(matrix, 0.5, feedback, serial_executor());
  std::vector<float> bare(w);
  for (std::size_t i = 0; i < bare.size(); ++i) bare[i] = pruned[i] == 0 ? 0 : w[i];
  const auto error = [&](const std::vector<float>& values) {
    const EncodedMatrix stored = store_like({}, {values, rows, cols, "w"}, serial_executor());
    return output_error(x, w, stored.stored);
  };
  EXPECT_LT(error(pruned), 0.3 * error(bare));
}

TEST(Gptq, keeps_zeros_where_the_format_has_one) {
  const Index rows = 8, cols = 128;
  auto w = normals(rows * cols, 5);
  for (std::size_t i = 0; i < w.size(); i += 2) w[i] = 0;
  const kernels::Gram gram = gram_of(correlated(300, cols, 2), cols);
  for (const char* name : {"int4:g32", "int4:g32:sym", "int3:row", "log4:g32", "q4_0", "q8_0"}) {
    const EncodedMatrix out = round_fed(*parse_weight_format(name), {w, rows, cols, "w"}, gram);
    std::vector<float> decoded(w.size());
    decode(out.stored, decoded);
    for (std::size_t i = 0; i < w.size(); i += 2) ASSERT_EQ(decoded[i], 0) << name << " " << i;
  }
}

TEST(Gptq, loses_less_of_the_outputs_than_rounding_does) {
  const Index rows = 24, cols = 256;
  const auto x = correlated(600, cols, 2), held_out = correlated(600, cols, 2),
             w = normals(rows * cols, 3);
  const kernels::Gram gram = gram_of(x, cols);
  const WeightMatrix matrix{w, rows, cols, "w"};
  for (const char* name : {"int2:g64", "int3:g64", "int4:g32", "int4:row", "q4_0", "q4_1", "q5_0",
                           "iq4_nl", "q4_k", "q6_k", "q3_k", "log4:g32", "int4:tensor"}) {
    const auto format = parse_weight_format(name);
    const double plain = output_error(held_out, w, round_plain(*format, matrix, {}).stored);
    const double weighted =
        output_error(held_out, w, round_plain(*format, matrix, importance_of(gram)).stored);
    const double fed = output_error(held_out, w, round_fed(*format, matrix, gram).stored);
    EXPECT_LT(fed, 0.6 * plain) << name;
    EXPECT_LT(fed, 0.7 * weighted) << name;
  }
}

TEST(Gptq, tells_the_error_of_outputs) {
  const Index rows = 5, cols = 96, count = 200;
  const auto x = correlated(count, cols, 4), w = normals(rows * cols, 5);
  const kernels::Gram gram = gram_of(x, cols);
  const WeightMatrix matrix{w, rows, cols, "w"};
  const auto format = parse_weight_format("int4:g32");
  const EncodedMatrix rounded = round_plain(*format, matrix, {});
  const ErrorFeedback feedback(gram, {.damp = 1e-9}, "w", serial_executor());
  const std::vector<float> zeros(w.size());
  const auto none = parse_weight_format("int8:row");
  const double size = output_error(x, w, round_plain(*none, {zeros, rows, cols, "0"}, {}).stored);
  EXPECT_NEAR(relative_output_error(matrix, rounded.stored, feedback, serial_executor()) /
                  (output_error(x, w, rounded.stored) / size),
              1, 1e-4);
}

TEST(Gptq, never_fails_for_finite_inputs) {
  const auto format = parse_weight_format("int4:g16:asym");
  for (const Index cols : {16, 64, 200}) {
    const auto w = normals(7 * cols, 6);
    const WeightMatrix matrix{w, 7, cols, "w"};
    const std::vector<float> zeros(static_cast<std::size_t>(4 * cols));
    auto one_row = normals(cols, 7);                    // rank 1
    std::vector<float> dead = correlated(50, cols, 8);  // a column that is never used
    for (std::size_t i = 3; i < dead.size(); i += static_cast<std::size_t>(cols)) dead[i] = 0;
    std::vector<float> huge = correlated(50, cols, 8);
    for (float& value : huge) value *= 1e15f;
    for (const auto& x : {zeros, one_row, dead, huge}) {
      for (const double damp : {0.0, 0.01}) {
        const kernels::Gram gram = gram_of(x, cols);
        const EncodedMatrix out = round_fed(*format, matrix, gram, {.damp = damp});
        std::vector<float> decoded(w.size());
        decode(out.stored, decoded);
        for (const float value : decoded) ASSERT_TRUE(std::isfinite(value));
      }
    }
    // Inputs that are all 0 give plain rounding.
    const EncodedMatrix fed = round_fed(*format, matrix, gram_of(zeros, cols));
    const EncodedMatrix plain = round_plain(*format, matrix, importance_of(gram_of(zeros, cols)));
    EXPECT_TRUE(std::ranges::equal(fed.codes.span(), plain.codes.span()));
  }
  std::vector<float> bad = normals(64, 1);
  bad[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(hone::test::error_of(
                  [&] { ErrorFeedback(gram_of(bad, 16), {}, "layer", serial_executor()); }),
              HasSubstr("[layer] expected finite inputs"));
}

TEST(Gptq, is_the_same_for_any_number_of_threads) {
  const Index rows = 40, cols = 288;
  const auto x = correlated(100, cols, 2), w = normals(rows * cols, 3);
  const kernels::Gram gram = gram_of(x, cols);
  const auto format = parse_weight_format("q4_0");
  const WeightMatrix matrix{w, rows, cols, "w"};
  const EncodedMatrix one = round_fed(*format, matrix, gram);
  ThreadPool pool(3);
  const EncodedMatrix many = round_fed(*format, matrix, gram, {}, pool);
  EXPECT_TRUE(std::ranges::equal(one.codes.span(), many.codes.span()));
}

}  // namespace
}  // namespace hone::compress
