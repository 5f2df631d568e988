// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

// Linear algebra of the part geometry: row-major matrices in double without gaps, which are square
// or have a handful of rows. Sums run in a fixed order that depends only on the instruction set.
namespace hone::kernels {

// out [n, m]: out[i, j] = <a[i], b[j]> for a [n, dim] and b [m, dim]. out must not alias a or b.
void inner_products(const double* a, Index n, const double* b, Index m, Index dim, double* out);

// out [dim] = Σ_k weights[k stride] rows[k] for rows [m, dim]. out must not alias the inputs. Every
// element is computed by the same operations. So if the weights are columns of `rows`, the matrix
// rowsᵀ rows is symmetric bit for bit.
void mix_row(const double* weights, Index stride, const double* rows, Index m, Index dim,
             double* out);
// out [n, dim] = weights [n, m] rows [m, dim].
void mix_rows(const double* weights, Index n, const double* rows, Index m, Index dim, double* out);
// out [n, dim] = weightsᵀ rows for weights [m, n].
void mix_rows_transposed(const double* weights, Index n, const double* rows, Index m, Index dim,
                         double* out);

// Replaces the upper triangle of a symmetric matrix a [n, n] by U with a = Uᵀ U. The lower triangle
// is neither read nor written. Returns false if a pivot is not positive; a is then partly
// overwritten.
bool cholesky(double* a, Index n);
// Replaces each row x of rows [m, n] by (Uᵀ U)⁻¹ x, with the factor of cholesky().
void cholesky_solve(const double* factor, Index n, double* rows, Index m);

// Computes the eigenvalues [n], in no order, and the orthonormal eigenvectors of a symmetric matrix
// a [n, n], which is destroyed. Eigenvectors are the rows of vectors [n, n]: a = Σ_k values[k]
// vectors[k]ᵀ vectors[k]. Runs cyclic Jacobi rotations until every |a_pq| <= 2^-53 √|a_pp a_qq|
// (Demmel and Veselić, "Jacobi's method is more accurate than QR", 1992). A matrix that is not
// finite gives values that are not finite.
void symmetric_eigen(double* a, Index n, double* values, double* vectors);

}  // namespace hone::kernels
