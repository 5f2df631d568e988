// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "hone/core/index.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "hone/train/linalg/pivoted_qr.h"

namespace hone::linalg {

struct CqrrptOptions {
  double gamma = 1.25;  // rows of the sketch for each column, at least 1
  Index nonzeros = 4;   // nonzeros of the sketch per row of A
  std::uint64_t seed = 0;
};

// Computes A[:, pivots] ~ q r of a numerical rank k, in f32 or f64: q [m, k] with orthonormal
// columns, r [k, n] upper trapezoidal with a positive diagonal, pivots [n]. Faster than pivoted QR
// of a tall A [m, n], because only a sketch of gamma n rows is pivoted. A itself needs only
// products, triangular solves and Cholesky factorizations (Melnichenko et al., arXiv 2311.08316).
//
// The rank excludes diagonal entries of the pivoted QR of the sketch that are at most 2
// roundoff^0.95 times the first one, and columns that a Cholesky factorization then finds to depend
// on those before. It does not depend on the scale of A, and a zero matrix has rank 0. If the
// sketch would have m rows or more, as for every wide A, A itself is pivoted by the first rule.
//
// CPU only. Throws like pivoted_qr(); also Error{InvalidArgument} if gamma is below 1 or not
// finite, or nonzeros is below 1. If nonzeros exceeds the rows of the sketch, each column of it is
// dense.
PivotedQr cqrrpt(const at::Tensor& a, const CqrrptOptions& options = {});

namespace detail {

// The first stage of cqrrpt and lstsq_sketched.
struct PivotedSketch {
  // Pivoted QR of S A, or of A if it is not sketched. In the factor R of PackedQr::r(), the leading
  // `rank` rows and columns are conditioned well enough for a solve.
  PackedQr qr;
  at::Tensor r;  // [rank, n]
  Index rank = 0;
  bool is_exact = false;   // S = I
  kernels::SketchOp op{};  // S, unless is_exact
};
PivotedSketch pivot_sketch(const at::Tensor& a, const CqrrptOptions& options);

// Throws Error{InvalidArgument} that begins with [op] if an option is out of range.
void check_sketch_options(std::string_view op, const CqrrptOptions& options);

}  // namespace detail
}  // namespace hone::linalg
