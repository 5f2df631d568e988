// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "hone/core/index.h"

namespace hone::linalg {

// A[:, pivots] = q r. q [m, k] has orthonormal columns, r [k, n] is upper triangular with a
// nonnegative diagonal, and pivots [n] is an int64 permutation.
struct PivotedQr {
  at::Tensor q, r, pivots;
};

// Householder QR of A [m, n] in f32 or f64, k = min(m, n). Each step takes the column with the
// largest norm below the finished rows (Businger and Golub, 1965), and the first of equal ones. Up
// to rounding, the diagonal of r descends, and no entry r[i, j] is larger than r[i, i].
//
// Norms are downdated in each step, and recomputed when that has lost half of their digits (Drmac
// and Bujanovic, "On the failure of rank-revealing QR factorization software", 2008).
//
// CPU only. Throws Error{InvalidArgument} for a tensor that is not a matrix, another type, and NaN
// or infinite entries; Error{Unsupported} for a tensor on a device. An empty matrix has empty
// factors. Gradients do not flow through any function of this folder.
PivotedQr pivoted_qr(const at::Tensor& a);

namespace detail {

// Factors in place. On entry, row j of the contiguous `columns` [n, m] is column j of the matrix.
// On return it is column pivots[j] in LAPACK's packed form: entries of R up to the diagonal, then
// the entries of v after its leading 1, for the reflector I - tau v v^T.
struct PackedQr {
  at::Tensor columns;
  at::Tensor tau;     // [k]
  at::Tensor pivots;  // int64 [n]

  Index rank() const { return tau.numel(); }  // k
  at::Tensor r() const;                       // [k, n]; diagonal entries may be negative
  at::Tensor q() const;                       // [m, k]
};

// Overwrites `columns`. Its entries must be finite, and sums of their squares must not overflow.
PackedQr factor_pivoted(at::Tensor columns);

// Makes the diagonal of r [k, n] nonnegative; q is undefined or [m, k].
void fix_signs(at::Tensor& q, at::Tensor& r);

}  // namespace detail
}  // namespace hone::linalg
