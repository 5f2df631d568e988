// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see ridge_distance.cc.
#if defined(HONE_KERNELS_BATCHED_RIDGE_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_BATCHED_RIDGE_DISTANCE_INL_H_
#undef HONE_KERNELS_BATCHED_RIDGE_DISTANCE_INL_H_
#else
#define HONE_KERNELS_BATCHED_RIDGE_DISTANCE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "hone/kernels/paco/ridge_distance.h"
#include "hone/kernels/paco/row_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Writes A^T A on and below the diagonal of `gram` [rank, rank].
void gram_of_factor(const double* factor, Index rank, Index dim, double* gram) {
  for (Index i = 0; i < rank; ++i)
    for (Index j = 0; j <= i; ++j)
      gram[i * rank + j] = dot_rows(factor + i * dim, factor + j * dim, dim);
}

// Replaces A^T x in y by the solution of L L^T y = A^T x.
HWY_INLINE void solve_gram(const double* chol, Index rank, double* y) {
  for (Index i = 0; i < rank; ++i) {
    double rest = y[i];
    for (Index k = 0; k < i; ++k) rest -= chol[i * rank + k] * y[k];
    y[i] = rest / chol[i * rank + i];
  }
  for (Index i = rank - 1; i >= 0; --i) {
    double rest = y[i];
    for (Index k = i + 1; k < rank; ++k) rest -= chol[k * rank + i] * y[k];
    y[i] = rest / chol[i * rank + i];
  }
}

// Returns |x - A y|^2 and writes w = (x - A y) / delta unless w is null.
HWY_INLINE double residual(const RidgeDistanceArgs& args, const double* factor, const double* x,
                           const double* y, double inverse_delta, double* w) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto squares = hn::Zero(d);
  Index c = 0;
  for (; c + lanes <= args.dim; c += lanes) {
    auto rest = hn::LoadU(d, x + c);
    for (Index i = 0; i < args.rank; ++i) {
      rest = hn::NegMulAdd(hn::Set(d, y[i]), hn::LoadU(d, factor + i * args.dim + c), rest);
    }
    squares = hn::MulAdd(rest, rest, squares);
    if (w != nullptr) hn::StoreU(hn::Mul(rest, hn::Set(d, inverse_delta)), d, w + c);
  }
  double tail = 0;
  for (; c < args.dim; ++c) {
    double rest = x[c];
    for (Index i = 0; i < args.rank; ++i) rest -= y[i] * factor[i * args.dim + c];
    tail += rest * rest;
    if (w != nullptr) w[c] = rest * inverse_delta;
  }
  return hn::GetLane(hn::SumOfLanes(d, squares)) + tail;
}

HWY_INLINE void distances_of_image(const RidgeDistanceArgs& args, Index image) {
  const double* factor = args.factor + image * args.rank * args.dim;
  const double* chol = args.chol + image * args.rank * args.rank;
  const double delta = args.delta[image];
  for (Index row = image * args.rows; row < (image + 1) * args.rows; ++row) {
    const double* x = args.x + row * args.dim;
    double* y = args.y + row * args.rank;
    double* w = args.w == nullptr ? nullptr : args.w + row * args.dim;
    for (Index i = 0; i < args.rank; ++i) y[i] = dot_rows(factor + i * args.dim, x, args.dim);
    solve_gram(chol, args.rank, y);
    double penalty = 0;
    for (Index i = 0; i < args.rank; ++i) penalty += y[i] * y[i];
    args.q[row] = residual(args, factor, x, y, 1 / delta, w) / delta + penalty;
  }
}

HWY_INLINE void grads_of_image(const RidgeDistanceGradArgs& args, Index image) {
  const Index dim = args.dim, first = image * args.rows;
  double* by_x = args.grad_x == nullptr ? nullptr : args.grad_x + first * dim;
  double* by_factor =
      args.grad_factor == nullptr ? nullptr : args.grad_factor + image * args.rank * dim;
  if (by_x != nullptr) std::fill_n(by_x, args.rows * dim, 0.0);
  if (by_factor != nullptr) std::fill_n(by_factor, args.rank * dim, 0.0);
  double by_delta = 0;
  for (Index row = 0; row < args.rows; ++row) {
    const double* w = args.w + (first + row) * dim;
    const double* y = args.y + (first + row) * args.rank;
    const double g = args.grad_q[first + row];
    if (by_x != nullptr) add_scaled_row(2 * g, w, by_x + row * dim, dim);
    if (args.grad_delta != nullptr) by_delta -= g * dot_rows(w, w, dim);
    if (by_factor == nullptr) continue;
    for (Index i = 0; i < args.rank; ++i) {
      add_scaled_row(-2 * g * y[i], w, by_factor + i * dim, dim);
    }
  }
  if (args.grad_delta != nullptr) args.grad_delta[image] = by_delta;
}

void distances_of_images(const RidgeDistanceArgs& args, Index begin, Index end) {
  for (Index image = begin; image < end; ++image) distances_of_image(args, image);
}

void grads_of_images(const RidgeDistanceGradArgs& args, Index begin, Index end) {
  for (Index image = begin; image < end; ++image) grads_of_image(args, image);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
