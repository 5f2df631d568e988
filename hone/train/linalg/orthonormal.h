// SPDX-License-Identifier: Apache-2.0
// Bases of the row space of a matrix y [c, n], c <= n, of any rank. The fast path uses Cholesky
// factorizations of y y^T in f64, if their diagonals show that they are accurate enough (Yamamoto
// et al., "Roundoff error analysis of the CholeskyQR2 algorithm", 2015). Otherwise uses Householder
// reflectors.
#pragma once

#include <ATen/core/Tensor.h>

namespace hone::linalg::detail {

// y = l q with orthonormal rows of q [c, n].
struct RowBasis {
  at::Tensor q;
  at::Tensor l;  // [c, c], lower triangular
};
RowBasis orthonormal_rows(const at::Tensor& y);

// Returns a basis with a condition number near 1. Takes one round, where an orthonormal basis may
// take two.
at::Tensor well_conditioned_rows(const at::Tensor& y);

// Returns orthonormal rows [c, n] that are orthogonal to the orthonormal rows of `basis` [b, n].
// Together, both span the rows of y; b + c <= n.
at::Tensor orthonormal_rows_beside(const at::Tensor& basis, const at::Tensor& y);

}  // namespace hone::linalg::detail
