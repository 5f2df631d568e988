// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

// Linear algebra of the part geometry: row-major matrices in double without gaps, with a handful of
// rows or square. Sums run in a fixed order that depends on the instruction set alone.
namespace hone::kernels {

// out [n, m]: out[i, j] = <a[i], b[j]> of a [n, dim] and b [m, dim]. No aliasing with out.
void inner_products(const double* a, Index n, const double* b, Index m, Index dim, double* out);

// out [dim] = Σ_k weights[k stride] rows[k] of rows [m, dim]. No aliasing with out. Every element
// is computed by the same operations: with a column of the rows as weights, row i of rowsᵀ rows has
// at j the bits that row j has at i.
void mix_row(const double* weights, Index stride, const double* rows, Index m, Index dim,
             double* out);
// out [n, dim] = weights [n, m] rows [m, dim].
void mix_rows(const double* weights, Index n, const double* rows, Index m, Index dim, double* out);
// out [n, dim] = weightsᵀ rows of weights [m, n].
void mix_rows_transposed(const double* weights, Index n, const double* rows, Index m, Index dim,
                         double* out);

// Replaces the upper triangle of a symmetric matrix a [n, n] by U, a = Uᵀ U; the lower one is
// neither read nor written. False, with a in pieces, where a pivot is not positive.
bool cholesky(double* a, Index n);
// Replaces each row x of rows [m, n] by (Uᵀ U)⁻¹ x, with the factor of cholesky().
void cholesky_solve(const double* factor, Index n, double* rows, Index m);

// Eigenvalues [n], in no order, and orthonormal eigenvectors, the rows of vectors [n, n], of a
// symmetric matrix a [n, n], which is destroyed: a = Σ_k values[k] vectors[k]ᵀ vectors[k]. Cyclic
// Jacobi rotations until every |a_pq| <= 2^-53 √|a_pp a_qq| (Demmel and Veselić, "Jacobi's method
// is more accurate than QR", 1992). A matrix that is not finite gives values that are not.
void symmetric_eigen(double* a, Index n, double* values, double* vectors);

}  // namespace hone::kernels
