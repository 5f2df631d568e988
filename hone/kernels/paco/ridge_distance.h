// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Mahalanobis distances under Sigma = delta I + A A^T, with one Sigma for each image of a batch,
// without a dim x dim matrix. A is given by factor = A^T [rank, dim]; rank may be 0 or exceed dim.
// All matrices are row-major without gaps. With the Gram matrix G = A^T A + delta I [rank, rank]:
//   y = G^-1 A^T x = A^T Sigma^-1 x,     w = (x - A y) / delta = Sigma^-1 x,
//   q = |x - A y|^2 / delta + |y|^2 = x^T Sigma^-1 x,
//   log det Sigma = (dim - rank) log delta + log det G.
// y is the solution of a ridge regression and q is its minimum. As a sum of squares, q is never
// negative, and an error e of y changes q only by e^T G e / delta. The Woodbury form (|x|^2 - |L^-1
// A^T x|^2) / delta with G = L L^T cancels if x lies in the span of A (for both, see Higham,
// "Accuracy and Stability of Numerical Algorithms", 2002).
//
// In all functions below, a value that is not finite makes every result of its image that depends
// on it NaN or infinite, and no other result. Results do not depend on the number of workers. They
// depend on the instruction set only by rounding.

// Computes the Cholesky factor L of G and log det Sigma.
struct RidgeGramArgs {
  Index batch = 0, rank = 0, dim = 0;
  const double* factor = nullptr;  // [batch, rank, dim]
  const double* delta = nullptr;   // [batch]
  double* chol = nullptr;          // [batch, rank, rank], zero above the diagonal
  double* logdet = nullptr;        // [batch]
};

// Without rounding, no pivot of G is below delta. Pivots are raised to delta and to the rounding
// error of their own element of G, so that L exists for a factor of any size. Throws
// Error{InvalidArgument} for a negative batch or rank, a dim that is not positive, and a delta that
// is not positive and finite.
void ridge_gram(const RidgeGramArgs& args, Executor& executor = serial_executor());

// Computes y, w and q of `rows` vectors x of each image.
struct RidgeDistanceArgs {
  Index batch = 0, rows = 0, rank = 0, dim = 0;
  const double* factor = nullptr;  // [batch, rank, dim]
  const double* chol = nullptr;    // [batch, rank, rank], from ridge_gram
  const double* delta = nullptr;   // [batch]
  const double* x = nullptr;       // [batch, rows, dim]
  double* y = nullptr;             // [batch, rows, rank]
  double* w = nullptr;             // [batch, rows, dim], or null
  double* q = nullptr;             // [batch, rows]
};

// The result of a row depends only on that row and its image. Throws like ridge_gram(), and for
// negative rows.
void ridge_distance(const RidgeDistanceArgs& args, Executor& executor = serial_executor());

// Reference: the definition by a dense Cholesky factorization of Sigma; does not read chol.
void ridge_distance_ref(const RidgeDistanceArgs& args);

// Computes the gradients of sum grad_q q:
//   grad_x = 2 grad_q w,   grad_factor_i = sum over rows of -2 grad_q y_i w,
//   grad_delta = sum over rows of -grad_q |w|^2.
// Because y minimizes q, the derivatives of q are its derivatives with y held constant. All outputs
// are overwritten; outputs that are null are not computed.
struct RidgeDistanceGradArgs {
  Index batch = 0, rows = 0, rank = 0, dim = 0;
  const double* y = nullptr;       // [batch, rows, rank]
  const double* w = nullptr;       // [batch, rows, dim]
  const double* grad_q = nullptr;  // [batch, rows]
  double* grad_x = nullptr;        // [batch, rows, dim]
  double* grad_factor = nullptr;   // [batch, rank, dim]
  double* grad_delta = nullptr;    // [batch]
};

// Throws Error{InvalidArgument} for a negative batch, rows or rank, or a dim that is not positive.
void ridge_distance_grad(const RidgeDistanceGradArgs& args, Executor& executor = serial_executor());

// Throws Error{InvalidArgument} that names `op` unless every delta is positive and finite.
void check_ridge_deltas(std::string_view op, const double* delta, Index batch);

}  // namespace hone::kernels
