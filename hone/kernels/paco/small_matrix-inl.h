// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see small_matrix.cc.
#if defined(HONE_KERNELS_BATCHED_SMALL_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_BATCHED_SMALL_MATRIX_INL_H_
#undef HONE_KERNELS_BATCHED_SMALL_MATRIX_INL_H_
#else
#define HONE_KERNELS_BATCHED_SMALL_MATRIX_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "hone/kernels/paco/row_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (x, y) <- (c x - s y, s x + c y).
HWY_INLINE void rotate_rows(double c, double s, double* HWY_RESTRICT x, double* HWY_RESTRICT y,
                            Index n) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto cs = hn::Set(d, c), ss = hn::Set(d, s);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto from_x = hn::LoadU(d, x + i), from_y = hn::LoadU(d, y + i);
    hn::StoreU(hn::NegMulAdd(ss, from_y, hn::Mul(cs, from_x)), d, x + i);
    hn::StoreU(hn::MulAdd(ss, from_x, hn::Mul(cs, from_y)), d, y + i);
  }
  for (; i < n; ++i) {
    const double from_x = x[i], from_y = y[i];
    x[i] = c * from_x - s * from_y;
    y[i] = s * from_x + c * from_y;
  }
}

void inner_products_of_rows(const double* a, Index n, const double* b, Index m, Index dim,
                            double* out) {
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < m; ++j) out[i * m + j] = dot_rows(a + i * dim, b + j * dim, dim);
  }
}

// The last vector overlaps the one before, so no element is left to scalar code, which rounds
// differently.
void mix_one_row(const double* weights, Index stride, const double* rows, Index m, Index dim,
                 double* HWY_RESTRICT out) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto mix_at = [&](Index at) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (Index k = 0; k < m; ++k)
      sum = hn::MulAdd(hn::Set(d, weights[k * stride]), hn::LoadU(d, rows + k * dim + at), sum);
    hn::StoreU(sum, d, out + at);
  };
  if (dim >= lanes) {
    for (Index at = 0; at + lanes <= dim; at += lanes) mix_at(at);
    if (dim % lanes != 0) mix_at(dim - lanes);
    return;
  }
  for (Index i = 0; i < dim; ++i) {
    double sum = 0;
    for (Index k = 0; k < m; ++k) sum += weights[k * stride] * rows[k * dim + i];
    out[i] = sum;
  }
}

bool cholesky_in_place(double* a, Index n) {
  for (Index k = 0; k < n; ++k) {
    double* row = a + k * n;
    if (!(row[k] > 0)) return false;
    row[k] = std::sqrt(row[k]);
    for (Index j = k + 1; j < n; ++j) row[j] /= row[k];
    for (Index i = k + 1; i < n; ++i) add_scaled_row(-row[i], row + i, a + i * n + i, n - i);
  }
  return true;
}

void cholesky_solve_rows(const double* factor, Index n, double* rows, Index m) {
  for (double* x = rows; x != rows + m * n; x += n) {
    for (Index k = 0; k < n; ++k) {
      const double* u = factor + k * n;
      x[k] /= u[k];
      add_scaled_row(-x[k], u + k + 1, x + k + 1, n - k - 1);
    }
    for (Index k = n - 1; k >= 0; --k) {
      const double* u = factor + k * n;
      x[k] = (x[k] - dot_rows(u + k + 1, x + k + 1, n - k - 1)) / u[k];
    }
  }
}

// Makes a_pq zero by a rotation of rows and columns p and q, and applies it to the rows of
// `vectors`. Returns false if a_pq is negligible.
HWY_INLINE bool rotate_pair(double* a, Index n, Index p, Index q, double* vectors) {
  double *row_p = a + p * n, *row_q = a + q * n;
  const double a_pq = row_p[q], a_pp = row_p[p], a_qq = row_q[q];
  if (!(std::abs(a_pq) > 0x1p-53 * std::sqrt(std::abs(a_pp)) * std::sqrt(std::abs(a_qq))))
    return false;
  const double theta = (a_qq - a_pp) / (2 * a_pq);
  const double t = std::copysign(1 / (std::abs(theta) + std::sqrt(theta * theta + 1)), theta);
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  rotate_rows(c, s, row_p, row_q, n);
  row_p[p] = a_pp - t * a_pq;
  row_q[q] = a_qq + t * a_pq;
  row_p[q] = row_q[p] = 0;
  for (Index i = 0; i < n; ++i) {
    a[i * n + p] = row_p[i];
    a[i * n + q] = row_q[i];
  }
  rotate_rows(c, s, vectors + p * n, vectors + q * n, n);
  return true;
}

void symmetric_eigen_by_rotations(double* a, Index n, double* values, double* vectors) {
  constexpr int kMaxSweeps = 64;  // convergence is quadratic: fewer than ten are usual
  for (Index i = 0; i < n * n; ++i) vectors[i] = 0;
  for (Index i = 0; i < n; ++i) vectors[i * n + i] = 1;
  bool rotated = true;
  for (int sweep = 0; sweep < kMaxSweeps && rotated; ++sweep) {
    rotated = false;
    for (Index p = 0; p < n; ++p) {
      for (Index q = p + 1; q < n; ++q) rotated |= rotate_pair(a, n, p, q, vectors);
    }
  }
  for (Index i = 0; i < n; ++i) values[i] = a[i * n + i];
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
