// SPDX-License-Identifier: Apache-2.0
// Matrices with known properties, and measures of factorizations.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "hone/train/linalg/sketch_tensor.h"

namespace hone::test {

using at::Tensor;

inline Tensor gaussian(Index m, Index n, std::uint64_t seed, at::ScalarType type = at::kDouble) {
  const kernels::SketchOp op{.kind = kernels::SketchKind::Gaussian,
                             .rows = m,
                             .cols = n,
                             .seed = seed,
                             .stream = 77,
                             .scaled = false};
  return linalg::dense(op, type);
}

inline Tensor orthonormal(Index m, Index n, std::uint64_t seed) {
  return std::get<0>(at::linalg_qr(gaussian(m, n, seed)));
}

// In f64, [m, n] with these singular values.
inline Tensor with_spectrum(Index m, Index n, const Tensor& s, std::uint64_t seed) {
  const Index k = s.numel();
  return at::mm(orthonormal(m, k, seed) * s, orthonormal(n, k, seed + 1).t());
}

// From 1 down to 1 / condition, in equal ratios.
inline Tensor graded(Index count, double condition) {
  return at::logspace(0, -std::log10(condition), count, 10, at::kDouble);
}

inline double largest(const Tensor& x) { return x.numel() == 0 ? 0 : x.abs().max().item<double>(); }
inline double frobenius(const Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

// |Q^T Q - I| (Frobenius), computed in f64.
inline double orthogonality(const Tensor& q) {
  const Tensor exact = q.to(at::kDouble);
  return frobenius(at::mm(exact.t(), exact) - at::eye(q.size(1), at::kDouble));
}

// |A[:, pivots] - Q R| / |A| (Frobenius), computed in f64.
inline double qr_residual(const Tensor& a, const Tensor& q, const Tensor& r, const Tensor& pivots) {
  const Tensor rest =
      a.to(at::kDouble).index_select(1, pivots) - at::mm(q.to(at::kDouble), r.to(at::kDouble));
  return frobenius(rest) / std::max(frobenius(a), std::numeric_limits<double>::min());
}

inline bool is_permutation(const Tensor& pivots) {
  return std::get<0>(pivots.sort()).equal(at::arange(pivots.numel(), at::kLong));
}

inline bool is_upper(const Tensor& r) { return at::triu(r).equal(r); }

}  // namespace hone::test
