// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "hone/core/index.h"

namespace hone::linalg {

struct RandomizedSvdOptions {
  // Number of singular triplets to return. With a tolerance it is the maximum, and 0 sets no limit.
  Index rank = 0;
  // If above 0, finds the smallest rank with a relative error |A - u diag(s) v^T| / |A| (Frobenius)
  // of at most this. 0 returns `rank` triplets.
  double tolerance = 0;
  Index oversample = 10;  // columns of the sketch beyond `rank`
  Index power = 1;        // further blocks of the Krylov space; each costs two products with A
  Index block = 64;       // columns of each sketch if there is a tolerance
  std::uint64_t seed = 0;
};

// A ~ u diag(s) v^T. u [m, r] and v [n, r] have orthonormal columns, and s [r] descends. In each
// column of u, the entry with the largest absolute value is positive.
struct Svd {
  at::Tensor u, s, v;
};

// Computes the leading singular triplets of A [m, n] in f32 or f64. Projects A to the Krylov space
// that A^T A spans from A^T A S^T, where S is a seeded sparse sketch of rank + oversample rows
// (Halko, Martinsson and Tropp, arXiv 0909.4061; Musco and Musco, arXiv 1504.05477). Takes one
// sparse and 2 + 2 power dense products of A with that many columns. Uses memory for about 4 (power
// + 1) (rank + oversample) (m + n) numbers. Copies A only if its largest entry is outside 2^±40
// (f64: 2^±400).
//
// The error is near the error of the best approximation of this rank (figures:
// docs/performance.md). If the space would be as large as the smaller side of A, which includes
// rank >= min(m, n), calls at::linalg_svd; then r is at most min(m, n). A zero matrix has s = 0 and
// orthonormal u and v. Results depend on A, the options and LibTorch's thread count, but not on
// LibTorch's generators. Also runs on devices; the sketch is drawn on the CPU.
//
// Throws Error{InvalidArgument} for a tensor that is not a matrix, another type, NaN or infinite
// entries, options out of range, and if neither rank nor tolerance is set.
Svd randomized_svd(const at::Tensor& a, const RandomizedSvdOptions& options);

}  // namespace hone::linalg
