// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/small_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/paco/small_matrix.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/paco/small_matrix-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(inner_products_of_rows);
HWY_EXPORT(mix_one_row);
HWY_EXPORT(cholesky_in_place);
HWY_EXPORT(cholesky_solve_rows);
HWY_EXPORT(symmetric_eigen_by_rotations);

void inner_products(const double* a, Index n, const double* b, Index m, Index dim, double* out) {
  HWY_DYNAMIC_DISPATCH(inner_products_of_rows)(a, n, b, m, dim, out);
}

void mix_row(const double* weights, Index stride, const double* rows, Index m, Index dim,
             double* out) {
  HWY_DYNAMIC_DISPATCH(mix_one_row)(weights, stride, rows, m, dim, out);
}

void mix_rows(const double* weights, Index n, const double* rows, Index m, Index dim, double* out) {
  for (Index i = 0; i < n; ++i) mix_row(weights + i * m, 1, rows, m, dim, out + i * dim);
}

void mix_rows_transposed(const double* weights, Index n, const double* rows, Index m, Index dim,
                         double* out) {
  for (Index i = 0; i < n; ++i) mix_row(weights + i, n, rows, m, dim, out + i * dim);
}

bool cholesky(double* a, Index n) { return HWY_DYNAMIC_DISPATCH(cholesky_in_place)(a, n); }

void cholesky_solve(const double* factor, Index n, double* rows, Index m) {
  HWY_DYNAMIC_DISPATCH(cholesky_solve_rows)(factor, n, rows, m);
}

void symmetric_eigen(double* a, Index n, double* values, double* vectors) {
  HWY_DYNAMIC_DISPATCH(symmetric_eigen_by_rotations)(a, n, values, vectors);
}

}  // namespace hone::kernels
#endif
