// SPDX-License-Identifier: Apache-2.0
#include "hone/compress/method/low_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hone/compress/method/damped_factor.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/linalg/eigen.h"
#include "hone/kernels/linalg/triangular.h"

namespace hone::compress {
namespace {

using Matrix = std::vector<double>;  // row-major

constexpr double kDamp = 1e-6;

// a [m, k] · b [n, k]ᵀ.
Matrix multiply(const Matrix& a, const Matrix& b, Index m, Index n, Index k, Executor& executor) {
  Matrix c(static_cast<std::size_t>(m * n));
  kernels::subtract_product({.a = a.data(),
                             .a_stride = k,
                             .b = b.data(),
                             .b_stride = k,
                             .c = c.data(),
                             .c_stride = n,
                             .rows = m,
                             .cols = n,
                             .depth = k},
                            executor);
  for (double& value : c) value = -value;
  return c;
}

Matrix transposed(const Matrix& a, Index rows, Index cols) {
  Matrix out(a.size());
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < cols; ++j)
      out[static_cast<std::size_t>(j * rows + i)] = a[static_cast<std::size_t>(i * cols + j)];
  return out;
}

std::vector<float> narrowed(std::span<const double> values) {
  return {values.begin(), values.end()};
}

// Sets rank and loss from eigenvalues, which rounding may have made negative.
void choose_rank(const ChooseRank& choose, std::vector<double>& squares, ThinFactors& out) {
  for (double& square : squares) square = std::max(square, 0.0);
  out.rank = choose(squares);
  HONE_CHECK(out.rank > 0 && out.rank <= std::ssize(squares), "low rank",
             concat("a rank of at most ", squares.size()), out.rank);
  const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
  const double rest = std::accumulate(squares.begin() + out.rank, squares.end(), 0.0);
  out.loss = all > 0 ? rest / all : 0;
}

// Gives column i of B and row i of A the same size, so that neither is out of the range of f16.
void balance(ThinFactors& factors, Index rows, Index cols) {
  for (Index r = 0; r < factors.rank; ++r) {
    double a = 0, b = 0;
    for (Index j = 0; j < cols; ++j)
      a += std::pow(static_cast<double>(factors.a[static_cast<std::size_t>(r * cols + j)]), 2);
    for (Index i = 0; i < rows; ++i)
      b += std::pow(static_cast<double>(factors.b[static_cast<std::size_t>(i * factors.rank + r)]),
                    2);
    if (!(a > 0 && b > 0)) continue;
    const double ratio = std::sqrt(std::sqrt(b / static_cast<double>(rows)) /
                                   std::sqrt(a / static_cast<double>(cols)));
    for (Index j = 0; j < cols; ++j)
      factors.a[static_cast<std::size_t>(r * cols + j)] *= static_cast<float>(ratio);
    for (Index i = 0; i < rows; ++i)
      factors.b[static_cast<std::size_t>(i * factors.rank + r)] /= static_cast<float>(ratio);
  }
}

}  // namespace

ThinFactors factor_matrix(const WeightMatrix& matrix, const kernels::Gram* inputs,
                          const ChooseRank& choose, Executor& executor) {
  const Index rows = matrix.rows, cols = matrix.cols;
  HONE_TRACE_ZONE("low rank", {"rows", rows}, {"cols", cols});
  HONE_CHECK(inputs == nullptr || inputs->cols() == cols, "low rank",
             concat("inputs of ", cols, " columns"), inputs->cols());
  check_finite(matrix);
  if (inputs != nullptr && !inputs->is_finite())
    fail_corrupt(matrix.name, "finite inputs", "a value that is not");
  const Matrix w(matrix.values.begin(), matrix.values.end());
  ThinFactors out;
  // The rows of W S, whose Gram matrices have the singular values squared.
  const Matrix s = inputs != nullptr ? damped_factor(*inputs, 0, kDamp, executor) : Matrix();
  const Matrix ws =
      inputs != nullptr ? multiply(w, transposed(s, cols, cols), rows, cols, cols, executor) : w;
  if (rows <= cols) {
    auto eigen =
        kernels::decompose_symmetric(multiply(ws, ws, rows, rows, cols, executor), rows, executor);
    choose_rank(choose, eigen.values, out);
    eigen.vectors.resize(static_cast<std::size_t>(out.rank * rows));  // U_rᵀ
    const Matrix w_columns = transposed(w, rows, cols);
    out.a = narrowed(multiply(eigen.vectors, w_columns, out.rank, cols, rows, executor));
    out.b = narrowed(transposed(eigen.vectors, out.rank, rows));
    balance(out, rows, cols);
    return out;
  }
  const Matrix columns = transposed(ws, rows, cols);
  auto eigen = kernels::decompose_symmetric(multiply(columns, columns, cols, cols, rows, executor),
                                            cols, executor);
  choose_rank(choose, eigen.values, out);
  eigen.vectors.resize(static_cast<std::size_t>(out.rank * cols));  // V_rᵀ
  out.b = narrowed(multiply(ws, eigen.vectors, rows, out.rank, cols, executor));
  if (inputs != nullptr) kernels::solve_right(s, cols, eigen.vectors, executor);
  out.a = narrowed(eigen.vectors);
  balance(out, rows, cols);
  return out;
}

}  // namespace hone::compress
