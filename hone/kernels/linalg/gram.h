// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/index.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// The Gram matrix Σ xᵀ x of rows x [cols]: the second moments of a layer's inputs, not divided by
// the number of rows. Sums of up to kGramRows products are f32, and their sum is f64. The result
// does not depend on the number of threads, and it depends on how rows are split between calls of
// add() only by rounding.
inline constexpr Index kGramRows = 256;

class Gram {
 public:
  // Throws Error{InvalidArgument} for no columns, and Error{Resource} without memory for 8 cols²
  // bytes.
  explicit Gram(Index cols);

  // Adds rows x [rows, cols] with `stride` elements between rows.
  void add(const float* x, Index rows, Index stride, Executor& executor);

  Index cols() const { return cols_; }
  Index rows() const { return rows_; }  // added so far
  // The element of rows and columns i and j.
  double operator()(Index i, Index j) const {
    return sums_.as<double>()[i >= j ? i * cols_ + j : j * cols_ + i];
  }
  // [cols, cols], of which only the lower triangle is set.
  std::span<const double> lower() const {
    return {sums_.as<double>(), static_cast<std::size_t>(cols_ * cols_)};
  }
  // The whole matrix, with its upper triangle.
  std::vector<double> full() const;
  // The second moments of A x for the matrix A [rows, cols()]: A H Aᵀ.
  Gram projected(std::span<const float> a, Executor& executor) const;
  // Whether every element is finite: all inputs were, and no sum overflowed.
  bool is_finite() const;

 private:
  Index cols_ = 0, rows_ = 0;
  Buffer sums_;
};

}  // namespace hone::kernels
