// SPDX-License-Identifier: Apache-2.0
// Bases of the space that the rows of a matrix y [c, n] span, c <= n, whatever its rank is. The
// quick way are Cholesky factorizations of y y^T in f64, where their diagonals show that they lose
// no more digits than there are to lose (Yamamoto et al., "Roundoff error analysis of the
// CholeskyQR2 algorithm", 2015); otherwise Householder's reflectors.
#pragma once

#include <ATen/core/Tensor.h>

namespace hone::linalg::detail {

// y = l q with orthonormal rows of q [c, n].
struct RowBasis {
  at::Tensor q;
  at::Tensor l;  // [c, c], lower triangular
};
RowBasis orthonormal_rows(const at::Tensor& y);

// Rows of a condition number near 1, in one round where orthonormal ones may need two.
at::Tensor well_conditioned_rows(const at::Tensor& y);

// Orthonormal rows [c, n] that are orthogonal to the orthonormal rows of `basis` [b, n] and with
// them span the rows of y; b + c <= n.
at::Tensor orthonormal_rows_beside(const at::Tensor& basis, const at::Tensor& y);

}  // namespace hone::linalg::detail
