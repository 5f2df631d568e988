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
  Index nonzeros = 4;   // of the sketch for each row of A
  std::uint64_t seed = 0;
};

// A[:, pivots] ~ q r of a numerical rank k, in f32 or f64: q [m, k] with orthonormal columns, r
// [k, n] upper trapezoidal with a positive diagonal, pivots [n]. About 3 times as fast as pivoted
// QR of a tall A [m, n], because only a sketch of gamma n rows is pivoted; A itself takes products,
// a triangular solve and a Cholesky factorization (Melnichenko et al., arXiv 2311.08316).
//
// The rank leaves out what pivoted QR of the sketch finds below 2 roundoff^0.95 times its first
// entry, whatever the scale of A is, so a matrix of 0 has rank 0. Where the sketch would have m
// rows or more, as for every wide A, A is pivoted itself, by the same rule.
//
// CPU only. Errors as pivoted_qr; Error{InvalidArgument} on gamma below 1 or not finite, and on
// nonzeros below 1. (Of more nonzeros than the sketch has rows, all rows are taken.)
PivotedQr cqrrpt(const at::Tensor& a, const CqrrptOptions& options = {});

namespace detail {

// What both cqrrpt and lstsq_sketched begin with.
struct PivotedSketch {
  // The QR of S A, or of A where it is not sketched. PackedQr::r() gives R, whose rows and columns
  // up to `rank` are well enough conditioned to be solved with.
  PackedQr qr;
  at::Tensor r;  // [rank, n]
  Index rank = 0;
  bool is_exact = false;   // S = I
  kernels::SketchOp op{};  // S, unless is_exact
};
PivotedSketch pivot_sketch(const at::Tensor& a, const CqrrptOptions& options);

// Error{InvalidArgument} that begins with [op].
void check_sketch_options(std::string_view op, const CqrrptOptions& options);

}  // namespace detail
}  // namespace hone::linalg
