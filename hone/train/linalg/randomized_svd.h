// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hone/core/index.h"

namespace hone::linalg {

struct RandomizedSvdOptions {
  // Singular triplets that are returned; with a tolerance the most, where 0 sets no limit.
  Index rank = 0;
  // The smallest rank is sought whose relative error |A - u diag(s) v^T| / |A| (Frobenius) is at
  // most this; 0 returns `rank` triplets.
  double tolerance = 0;
  Index oversample = 10;  // columns of the sketch beyond `rank`
  Index power = 1;        // further blocks of the Krylov space; each costs two products with A
  Index block = 64;       // columns of the sketches that a tolerance takes one by one
  std::uint64_t seed = 0;
};

// A ~ u diag(s) v^T: u [m, r] and v [n, r] with orthonormal columns, s [r] descending. The entry of
// the largest size in each column of u is positive.
struct Svd {
  at::Tensor u, s, v;
};

// The leading singular triplets of A [m, n] in f32 or f64: those of A projected to the Krylov space
// that A^T A spans from A^T A S^T, where S is a seeded sparse sketch of rank + oversample rows
// (Halko, Martinsson and Tropp, arXiv 0909.4061; Musco and Musco, arXiv 1504.05477). It takes one
// sparse and 2 + 2 power dense products of A with that many columns, and memory for about 4 times
// (power + 1) (rank + oversample) (m + n) numbers; A is copied only if its largest entry is beyond
// 2^±40 (f64: 2^±400).
//
// The error is rarely more than 1.02 times that of the best approximation of the rank (1.05 where
// singular values hardly fall). Where the space would be as large as the smaller side of A, so also
// for rank >= min(m, n), it is at::linalg_svd; then r is at most min(m, n). A zero matrix gives
// s = 0 and orthonormal u, v. Results are a function of A, the options and LibTorch's thread count;
// its generators are not used. Runs on devices too, with the sketch drawn on the CPU.
//
// Error{InvalidArgument} on a tensor that is not a matrix, another type, NaN or infinite entries,
// neither rank nor tolerance, and options out of range.
Svd randomized_svd(const at::Tensor& a, const RandomizedSvdOptions& options);

}  // namespace hone::linalg
