// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "hone/core/index.h"

namespace hone::linalg {

// A[:, pivots] = q r with orthonormal columns of q [m, k], upper triangular r [k, n] whose diagonal
// is not negative, and int64 pivots [n], a permutation.
struct PivotedQr {
  at::Tensor q, r, pivots;
};

// Householder QR of A [m, n] in f32 or f64, k = min(m, n): each step takes the column whose part
// below the rows that are done is longest (Businger and Golub, 1965), the first of equal ones. Up
// to rounding, the diagonal of r descends, and no entry r[i, j] is larger than r[i, i].
//
// Lengths are downdated from step to step and computed again when that has lost half of their
// digits (Drmac and Bujanovic, "On the failure of rank-revealing QR factorization software", 2008).
//
// CPU only. Error{InvalidArgument} on a tensor that is not a matrix, another type, NaN or infinite
// entries; Error{Unsupported} on a device. An empty matrix has empty factors. Gradients do not
// flow through any function of this folder.
PivotedQr pivoted_qr(const at::Tensor& a);

namespace detail {

// The factorization in place. Row j of `columns` [n, m], contiguous, is column j of the matrix;
// afterwards it is column pivots[j] in LAPACK's packed form: entries of R up to the diagonal, then
// those of a reflector I - tau v v^T behind its leading 1.
struct PackedQr {
  at::Tensor columns;
  at::Tensor tau;     // [k]
  at::Tensor pivots;  // int64 [n]

  Index rank() const { return tau.numel(); }  // k
  at::Tensor r() const;                       // [k, n]; its diagonal has any sign
  at::Tensor q() const;                       // [m, k]
};

// `columns`, of finite numbers whose squares can be summed, is overwritten.
PackedQr factor_pivoted(at::Tensor columns);

// Makes the diagonal of r [k, n] not negative; q is undefined or [m, k].
void fix_signs(at::Tensor& q, at::Tensor& r);

}  // namespace detail
}  // namespace hone::linalg
