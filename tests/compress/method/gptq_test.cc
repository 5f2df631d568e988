// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hone/core/thread/thread_pool.h"
#include "tests/compress/normals.h"
#include "tests/support/error_of.h"

namespace hone::compress {
namespace {

using testing::HasSubstr;

// Rows of correlated inputs with columns of very different sizes.
std::vector<float> correlated(Index rows, Index cols, std::uint64_t seed) {
  const std::vector<float> noise = normals(rows * cols, seed), common = normals(rows * 4, seed + 1),
                           mix = normals(4 * cols, seed + 2);
  std::vector<float> x(noise.size());
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < cols; ++c) {
      double value = 0.3 * noise[static_cast<std::size_t>(r * cols + c)];
      for (Index k = 0; k < 4; ++k)
        value += static_cast<double>(common[static_cast<std::size_t>(r * 4 + k)]) *
                 static_cast<double>(mix[static_cast<std::size_t>(k * cols + c)]);
      x[static_cast<std::size_t>(r * cols + c)] = static_cast<float>(value * (c % 17 == 0 ? 8 : 1));
    }
  }
  return x;
}

kernels::Gram gram_of(const std::vector<float>& x, Index cols) {
  kernels::Gram gram(cols);
  gram.add(x.data(), std::ssize(x) / cols, cols, serial_executor());
  return gram;
}

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

// GPTQ as it was published: the inverse of H and its Cholesky factor, a column at a time.
std::vector<double> published(const WeightFormat& format, const WeightMatrix& matrix,
                              std::span<const BlockScales> scales, const kernels::Gram& gram,
                              double damping) {
  const Index n = matrix.cols;
  const auto at = [n](std::vector<double>& m, Index i, Index j) -> double& {
    return m[static_cast<std::size_t>(i * n + j)];
  };
  std::vector<double> h(static_cast<std::size_t>(n * n)), inverse(h.size()), upper(h.size());
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) at(h, i, j) = gram(i, j) + (i == j ? damping : 0);
    at(inverse, i, i) = 1;
  }
  for (Index p = 0; p < n; ++p) {  // Gauss-Jordan
    const double pivot = at(h, p, p);
    for (Index j = 0; j < n; ++j) at(h, p, j) /= pivot, at(inverse, p, j) /= pivot;
    for (Index i = 0; i < n; ++i) {
      const double factor = at(h, i, p);
      if (i == p) continue;
      for (Index j = 0; j < n; ++j) {
        at(h, i, j) -= factor * at(h, p, j);
        at(inverse, i, j) -= factor * at(inverse, p, j);
      }
    }
  }
  for (Index i = 0; i < n; ++i) {  // inverse = Uᵀ U
    for (Index j = i; j < n; ++j) {
      double sum = at(inverse, i, j);
      for (Index k = 0; k < i; ++k) sum -= at(upper, k, i) * at(upper, k, j);
      at(upper, i, j) = i == j ? std::sqrt(sum) : sum / at(upper, i, i);
    }
  }
  std::vector<double> out(matrix.values.begin(), matrix.values.end());
  for (Index row = 0; row < matrix.rows; ++row) {
    double* w = out.data() + row * n;
    for (Index i = 0; i < n; ++i) {
      const Affine& affine = affine_at(format, scales, n, row, i);
      const double q = format.decode(affine, format.encode(affine, static_cast<float>(w[i])));
      const double error = (w[i] - q) / at(upper, i, i);
      for (Index j = i + 1; j < n; ++j) w[j] -= error * at(upper, i, j);
      w[i] = q;
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
