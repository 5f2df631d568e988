// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "hone/compress/method/select.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/linalg/triangular.h"

namespace hone::compress {
namespace {

constexpr Index kBlock = 128;    // columns whose feedback is one product
constexpr Index kRowGrain = 16;  // rows of a task
constexpr Index kSampleRows = 128;

double mean_of_diagonal(const kernels::Gram& inputs) {
  double sum = 0;
  for (Index i = 0; i < inputs.cols(); ++i) sum += inputs(i, i);
  return sum / static_cast<double>(inputs.cols());
}

// H + damping I with rows and columns from the last to the first of `order`: the lower Cholesky
// factor of this matrix is R with both reversed.
void fill_reversed(const kernels::Gram& inputs, std::span<const Index> order, double damping,
                   std::span<double> out, Executor& executor) {
  const Index n = inputs.cols();
  executor.parallel_for(n, 16, [&](Index begin, Index end, int) {
    for (Index row = begin; row < end; ++row) {
      const Index from = order[static_cast<std::size_t>(n - 1 - row)];
      double* to = out.data() + row * n;
      for (Index col = 0; col <= row; ++col)
        to[col] = inputs(from, order[static_cast<std::size_t>(n - 1 - col)]);
      to[row] += damping;
    }
  });
}

// Subtracts what errors δ [rows, cols] in the order of rounding ask of columns first, first + 1, …,
// Σ_j δ_j factor_ij over the first `depth` columns j, from rows of kBlock columns.
void subtract_feedback(const ErrorFeedback& from, const double* errors, Index rows, Index first,
                       Index count, Index depth, double* out) {
  kernels::subtract_product({.a = errors,
                             .a_stride = from.cols(),
                             .b = from.factors(first),
                             .b_stride = from.cols(),
                             .c = out,
                             .c_stride = kBlock,
                             .rows = rows,
                             .cols = count,
                             .depth = depth},
                            serial_executor());
}

// Errors of one task: rows of δ in the order of rounding, and their effect on a block of columns.
struct TaskRows {
  std::vector<double> errors, feedback;
  std::vector<std::uint8_t> codes;

  TaskRows(Index rows, Index cols)
      : errors(static_cast<std::size_t>(rows * cols)),
        feedback(static_cast<std::size_t>(rows * kBlock)),
        codes(static_cast<std::size_t>(rows * cols)) {}

  // Sets the feedback of the first `depth` columns to columns first, first + 1, …, with its sign
  // changed.
  void feed(const ErrorFeedback& from, Index rows, Index first, Index count, Index depth) {
    std::ranges::fill(feedback, 0);
    subtract_feedback(from, errors.data(), rows, first, count, depth, feedback.data());
  }
};

// A weight that makes up for the changes of those before it: `targets` have what earlier blocks
// ask for, and `changes` are those of the block that begins at column `first`.
double with_block(std::span<const double> targets, std::span<const double> changes,
                  const ErrorFeedback& feedback, Index row, Index first, Index i) {
  const double* const factors = feedback.factors(first + i) + first;
  double value = targets[static_cast<std::size_t>(row * kBlock + i)];
  for (Index j = 0; j < i; ++j) value += changes[static_cast<std::size_t>(j)] * factors[j];
  return value;
}

}  // namespace

std::vector<float> importance_of(const kernels::Gram& inputs) {
  const double mean = mean_of_diagonal(inputs), unit = mean > 0 ? 1 / mean : 0;
  std::vector<float> importance;
  for (Index i = 0; i < inputs.cols(); ++i)
    importance.push_back(static_cast<float>(unit * inputs(i, i)));
  return importance;
}

ErrorFeedback::ErrorFeedback(const kernels::Gram& inputs, const FeedbackOptions& options,
                             std::string_view name, Executor& executor)
    : order_(static_cast<std::size_t>(inputs.cols())) {
  HONE_TRACE_ZONE("error feedback", {"cols", inputs.cols()});
  if (!inputs.is_finite()) fail_corrupt(name, "finite inputs", "a value that is not");
  const Index n = inputs.cols();
  std::iota(order_.begin(), order_.end(), Index{0});
  if (options.act_order)
    std::ranges::stable_sort(order_, std::greater<>(), [&](Index i) { return inputs(i, i); });
  const double mean = mean_of_diagonal(inputs);
  damping_ = mean > 0 ? options.damp * mean : 1;
  Buffer reversed(checked_mul(checked_mul(n, n, name), sizeof(double), name));
  const std::span<double> matrix(reversed.as<double>(), static_cast<std::size_t>(n * n));
  for (;; damping_ *= 10) {
    fill_reversed(inputs, order_, damping_, matrix, executor);
    if (kernels::factor_cholesky(matrix, n, executor)) break;
    if (damping_ == 0) damping_ = mean * 1e-12;  // options.damp may be 0
  }
  factors_ = Buffer(n * n * static_cast<Index>(sizeof(double)));
  pivots_.resize(order_.size());
  executor.parallel_for(n, 16, [&](Index begin, Index end, int) {
    for (Index at = begin; at < end; ++at) {
      const double root = matrix[static_cast<std::size_t>((n - 1 - at) * (n + 1))];
      pivots_[static_cast<std::size_t>(at)] = root * root;
      double* to = factors_.as<double>() + at * n;
      for (Index j = 0; j < at; ++j)
        to[j] = matrix[static_cast<std::size_t>((n - 1 - j) * n + n - 1 - at)] / root;
    }
  });
}

double ErrorFeedback::output_error(std::span<const double> errors, Executor& executor) const {
  const Index n = cols(), rows = std::ssize(errors) / n;
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(rows, kRowGrain)));
  executor.parallel_for(rows, kRowGrain, [&](Index begin, Index end, int) {
    TaskRows task(end - begin, n);
    for (Index row = begin; row < end; ++row) {
      for (Index at = 0; at < n; ++at)
        task.errors[static_cast<std::size_t>((row - begin) * n + at)] =
            errors[static_cast<std::size_t>(row * n + order_[static_cast<std::size_t>(at)])];
    }
    double sum = 0;
    for (Index first = 0; first < n; first += kBlock) {
      const Index count = std::min(kBlock, n - first);
      // The factors of a row end at its diagonal; the rest is 0.
      task.feed(*this, end - begin, first, count, first + count);
      for (Index row = 0; row < end - begin; ++row) {
        for (Index i = 0; i < count; ++i) {
          const double error = task.errors[static_cast<std::size_t>(row * n + first + i)] -
                               task.feedback[static_cast<std::size_t>(row * kBlock + i)];
          sum += pivot(first + i) * error * error;
        }
      }
    }
    sums[static_cast<std::size_t>(begin / kRowGrain)] = sum;
  });
  return rows == 0 ? 0 : std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(rows);
}

EncodedMatrix round_with_feedback(const WeightFormat& format, const WeightMatrix& matrix,
                                  std::span<const BlockScales> scales,
                                  const ErrorFeedback& feedback, Executor& executor) {
  HONE_TRACE_ZONE("round with feedback", {"rows", matrix.rows}, {"cols", matrix.cols});
  HONE_CHECK(feedback.cols() == matrix.cols, "gptq", concat("inputs of ", matrix.cols, " columns"),
             feedback.cols());
  const Index n = matrix.cols;
  EncodedMatrix out = format.allocate(matrix.rows, n);
  executor.parallel_for(matrix.rows, kRowGrain, [&](Index begin, Index end, int) {
    TaskRows task(end - begin, n);
    for (Index first = 0; first < n; first += kBlock) {
      const Index count = std::min(kBlock, n - first);
      task.feed(feedback, end - begin, first, count, first);
      for (Index row = begin; row < end; ++row) {
        const float* weights = matrix.values.data() + row * n;
        double* errors = task.errors.data() + (row - begin) * n;
        std::uint8_t* codes = task.codes.data() + (row - begin) * n;
        for (Index i = 0; i < count; ++i) {
          const Index at = first + i, col = feedback.order()[static_cast<std::size_t>(at)];
          const double* factors = feedback.factors(at) + first;
          double target =
              weights[col] - task.feedback[static_cast<std::size_t>((row - begin) * kBlock + i)];
          for (Index j = 0; j < i; ++j) target += errors[first + j] * factors[j];
          const Affine& affine = affine_at(format, scales, n, row, col);
          if (weights[col] == 0 && format.decode(affine, format.encode(affine, 0)) == 0) target = 0;
          codes[col] = format.encode(affine, static_cast<float>(target));
          errors[at] = static_cast<double>(weights[col]) -
                       static_cast<double>(format.decode(affine, codes[col]));
        }
      }
    }
    for (Index row = begin; row < end; ++row)
      store_row(
          format, scales, row,
          std::span(task.codes)
              .subspan(static_cast<std::size_t>((row - begin) * n), static_cast<std::size_t>(n)),
          out);
  });
  return out;
}

std::vector<float> prune_with_feedback(const WeightMatrix& matrix, double sparsity,
                                       const ErrorFeedback& feedback, Executor& executor) {
  HONE_TRACE_ZONE("prune with feedback", {"rows", matrix.rows}, {"cols", matrix.cols});
  HONE_CHECK(feedback.cols() == matrix.cols, "sparsegpt",
             concat("inputs of ", matrix.cols, " columns"), feedback.cols());
  const Index n = matrix.cols;
  std::vector<double> errors(matrix.values.size());  // rows in the order of rounding
  std::vector<double> targets(static_cast<std::size_t>(matrix.rows * kBlock));
  std::vector<float> out(matrix.values.size()), losses;
  std::vector<std::uint8_t> kept;
  for (Index first = 0; first < n; first += kBlock) {
    const Index count = std::min(kBlock, n - first);
    losses.resize(static_cast<std::size_t>(matrix.rows * count));
    kept.resize(losses.size());
    const auto column = [&](Index i) {
      return feedback.order()[static_cast<std::size_t>(first + i)];
    };
    // What the columns of earlier blocks leave to make up for.
    executor.parallel_for(matrix.rows, kRowGrain, [&](Index begin, Index end, int) {
      double* const block = targets.data() + begin * kBlock;
      for (Index row = begin; row < end; ++row) {
        for (Index i = 0; i < count; ++i)
          targets[static_cast<std::size_t>(row * kBlock + i)] =
              -static_cast<double>(matrix.row(row)[static_cast<std::size_t>(column(i))]);
      }
      subtract_feedback(feedback, errors.data() + begin * n, end - begin, first, count, first,
                        block);
      for (double& target : std::span(block, static_cast<std::size_t>((end - begin) * kBlock)))
        target = -target;
      // The loss of a weight counts as if all before it in the block stayed.
      std::vector<double> changes(static_cast<std::size_t>(count));
      for (Index row = begin; row < end; ++row) {
        for (Index i = 0; i < count; ++i) {
          const double value = with_block(targets, changes, feedback, row, first, i);
          changes[static_cast<std::size_t>(i)] =
              static_cast<double>(matrix.row(row)[static_cast<std::size_t>(column(i))]) - value;
          losses[static_cast<std::size_t>(row * count + i)] =
              static_cast<float>(feedback.pivot(first + i) * value * value);
        }
      }
    });
    const auto pruned = [&](Index columns) {
      return std::llround(sparsity * static_cast<double>(matrix.rows * columns));
    };
    mark_largest(losses, pruned(first + count) - pruned(first), kept);
    executor.parallel_for(matrix.rows, kRowGrain, [&](Index begin, Index end, int) {
      for (Index row = begin; row < end; ++row) {
        const std::span<double> own(errors.data() + row * n + first,
                                    static_cast<std::size_t>(count));
        for (Index i = 0; i < count; ++i) {
          const double value = with_block(targets, own, feedback, row, first, i);
          const auto to = static_cast<std::size_t>(row * n + column(i));
          out[to] =
              kept[static_cast<std::size_t>(row * count + i)] != 0 ? static_cast<float>(value) : 0;
          own[static_cast<std::size_t>(i)] =
              static_cast<double>(matrix.values[to]) - static_cast<double>(out[to]);
        }
      }
    });
  }
  return out;
}

double relative_output_error(const WeightMatrix& matrix, const StoredMatrix& stored,
                             const ErrorFeedback& feedback, Executor& executor) {
  const Index rows = std::min(kSampleRows, matrix.rows), n = matrix.cols;
  std::vector<double> weights, errors;
  std::vector<float> decoded(static_cast<std::size_t>(n));
  for (Index i = 0; i < rows; ++i) {
    const Index row = i * matrix.rows / rows;
    decode_row(stored, row, decoded);
    const std::span<const float> from = matrix.row(row);
    for (std::size_t col = 0; col < decoded.size(); ++col) {
      weights.push_back(from[col]);
      errors.push_back(static_cast<double>(from[col]) - static_cast<double>(decoded[col]));
    }
  }
  const double size = feedback.output_error(weights, executor);
  return size > 0 ? feedback.output_error(errors, executor) / size : 0;
}

Encoding encode_matrix(const WeightFormat& format, const WeightMatrix& matrix,
                       const FitOptions& options, const kernels::Gram* inputs,
                       const ErrorFeedback* feedback, Executor& executor) {
  Encoding out;
  out.algorithm = inputs != nullptr ? "importance" : "rtn";
  const std::vector<float> importance =
      inputs != nullptr ? importance_of(*inputs) : std::vector<float>();
  out.scales = fit_matrix(format, matrix, importance, options, executor);
  out.matrix = round_matrix(format, matrix, out.scales, executor);
  if (feedback == nullptr) return out;
  EncodedMatrix fed = round_with_feedback(format, matrix, out.scales, *feedback, executor);
  const double fed_error = relative_output_error(matrix, fed.stored, *feedback, executor);
  out.rounded_error = relative_output_error(matrix, out.matrix.stored, *feedback, executor);
  out.best_error = std::min(out.rounded_error, fed_error);
  if (fed_error < out.rounded_error) {
    out.matrix = std::move(fed);
    out.algorithm = "gptq";
  }
  return out;
}

}  // namespace hone::compress
