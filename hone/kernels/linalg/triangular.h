// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/index.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Dense linear algebra in f64 for symmetric matrices of some thousand rows, such as the second
// moments of a layer's inputs. Matrices are row-major and contiguous. Results do not depend on the
// number of threads.

// c [m, n] -= a [m, k] · b [n, k]ᵀ. Strides are those of rows, in elements.
struct SubtractProductArgs {
  const double* a = nullptr;
  Index a_stride = 0;
  const double* b = nullptr;
  Index b_stride = 0;
  double* c = nullptr;
  Index c_stride = 0;
  Index rows = 0, cols = 0, depth = 0;
};
void subtract_product(const SubtractProductArgs& args, Executor& executor);

// Replaces the lower triangle of a symmetric matrix [n, n] by the L of its Cholesky decomposition
// L Lᵀ. The strict upper triangle is not read and is undefined afterwards. Returns false if the
// matrix is not positive definite to working precision or not finite; all of it is then undefined.
[[nodiscard]] bool factor_cholesky(std::span<double> matrix, Index n, Executor& executor);

// Replaces the rows b [m, n] by the solution x of x · Lᵀ = b. L is lower triangular [n, n].
void solve_right_transposed(std::span<const double> l, Index n, std::span<double> b,
                            Executor& executor);
// Replaces the rows b [m, n] by the solution x of x · L = b.
void solve_right(std::span<const double> l, Index n, std::span<double> b, Executor& executor);
// Replaces the rows b [m, n] by the solution x of x · (L Lᵀ) = b.
void solve_cholesky(std::span<const double> l, Index n, std::span<double> b, Executor& executor);

}  // namespace hone::kernels
