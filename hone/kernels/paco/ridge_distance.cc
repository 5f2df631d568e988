// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/paco/ridge_distance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/paco/ridge_distance.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/paco/ridge_distance-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(gram_of_factor);
HWY_EXPORT(distances_of_images);
HWY_EXPORT(grads_of_images);

namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

void check_sizes(std::string_view op, Index batch, Index rows, Index rank, Index dim) {
  HONE_CHECK(batch >= 0, op, "batch >= 0", batch);
  HONE_CHECK(rows >= 0, op, "rows >= 0", rows);
  HONE_CHECK(rank >= 0, op, "rank >= 0", rank);
  HONE_CHECK(dim > 0, op, "dim > 0", dim);
}

// Turns A^T A below the diagonal into the Cholesky factor of G; returns log det G.
double factorize(double* gram, Index rank, double delta) {
  double logdet = 0;
  for (Index i = 0; i < rank; ++i) {
    double* row = gram + i * rank;
    for (Index j = 0; j < i; ++j) {
      const double* other = gram + j * rank;
      for (Index k = 0; k < j; ++k) row[j] -= row[k] * other[k];
      row[j] /= other[j];
    }
    const double noise = static_cast<double>(rank) * kEpsilon * row[i];
    double pivot = row[i] + delta;
    for (Index k = 0; k < i; ++k) pivot -= row[k] * row[k];
    pivot = std::max(pivot, std::max(delta, noise));  // keeps a NaN
    logdet += std::log(pivot);
    row[i] = std::sqrt(pivot);
    std::fill(row + i + 1, row + rank, 0.0);
  }
  return logdet;
}

}  // namespace

void check_ridge_deltas(std::string_view op, const double* delta, Index batch) {
  for (Index image = 0; image < batch; ++image) {
    HONE_CHECK(delta[image] > 0 && delta[image] < std::numeric_limits<double>::infinity(), op,
               concat("a positive, finite delta for image ", image), delta[image]);
  }
}

void ridge_gram(const RidgeGramArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("ridge_gram", {"batch", args.batch}, {"rank", args.rank}, {"dim", args.dim});
  check_sizes("ridge_gram", args.batch, 0, args.rank, args.dim);
  check_ridge_deltas("ridge_gram", args.delta, args.batch);
  const Index grain = rows_per_chunk(2 * args.rank * (args.dim + args.rank));
  executor.parallel_for(args.batch, grain, [&](Index begin, Index end, int) {
    for (Index image = begin; image < end; ++image) {
      const double delta = args.delta[image];
      double* chol = args.chol + image * args.rank * args.rank;
      HWY_DYNAMIC_DISPATCH(gram_of_factor)
      (args.factor + image * args.rank * args.dim, args.rank, args.dim, chol);
      const auto free = static_cast<double>(args.dim - args.rank);
      args.logdet[image] = free * std::log(delta) + factorize(chol, args.rank, delta);
    }
  });
}

void ridge_distance(const RidgeDistanceArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("ridge_distance", {"batch", args.batch}, {"rows", args.rows}, {"rank", args.rank},
                  {"dim", args.dim});
  check_sizes("ridge_distance", args.batch, args.rows, args.rank, args.dim);
  check_ridge_deltas("ridge_distance", args.delta, args.batch);
  const Index grain = rows_per_chunk(2 * (args.rows + args.rank) * args.dim);
  executor.parallel_for(args.batch, grain, [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(distances_of_images)(args, begin, end);
  });
}

void ridge_distance_grad(const RidgeDistanceGradArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("ridge_distance_grad", {"batch", args.batch}, {"rows", args.rows},
                  {"rank", args.rank}, {"dim", args.dim});
  check_sizes("ridge_distance_grad", args.batch, args.rows, args.rank, args.dim);
  const Index grain = rows_per_chunk(2 * (args.rows + args.rank) * args.dim);
  executor.parallel_for(args.batch, grain, [&](Index begin, Index end, int) {
    HWY_DYNAMIC_DISPATCH(grads_of_images)(args, begin, end);
  });
}

}  // namespace hone::kernels
#endif
