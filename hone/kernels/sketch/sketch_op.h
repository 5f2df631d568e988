// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// Distribution of the entries of a random matrix S [rows, cols]. The sparse kinds draw vectors with
// `nnz` entries ±1 at distinct positions. There are never fewer, unlike in libraries that draw
// positions with replacement.
enum class SketchKind {
  Gaussian,        // independent and standard normal
  Rademacher,      // independent, ±1
  SparseSign,      // a vector along the short side for each index of the long side
  SparseSignLong,  // a vector along the long side for each index of the short side
  CountSketch,     // ±1 in one row of each column (Clarkson and Woodruff, arXiv 1207.6365)
  // A column has ±1 in one row of each of nnz blocks of rows, whose sizes differ by at most 1 (the
  // block construction of OSNAP: Nelson and Nguyen, arXiv 1211.1002).
  Sjlt,
  // `rows` distinct rows of H D (Tropp, arXiv 1011.1595): D has random signs, and H is the first
  // `cols` columns of the orthonormal Hadamard matrix of the next power of two. All entries of S
  // have the same magnitude and all columns the same norm, whatever `cols` is. (A block diagonal H
  // of the powers of two in `cols` would need no padding. But if `cols` is 2^k + 1, it would drop
  // the last coordinate unless its one row is drawn.) rows <= cols.
  Srht,
};

// A random matrix as a value: each entry is a pure function of the fields and its position,
// computed with the Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). It has exactly the requested shape, even if rows exceed cols.
struct SketchOp {
  SketchKind kind = SketchKind::Gaussian;
  Index rows = 0, cols = 0;  // in [1, kMaxSketchSize]
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // operators of one seed with different streams share no random bits
  Index nnz = 1;             // for SparseSign, SparseSignLong, Sjlt: in [1, length of a vector]
  // If true, multiplies by isometry_scale. Otherwise entries are as listed at SketchKind; entries
  // of Srht are ±1/sqrt(length of H).
  bool scaled = true;

  friend bool operator==(const SketchOp&, const SketchOp&) = default;
};

inline constexpr Index kMaxSketchSize = Index{1} << 30;

// Returns the factor that makes E|S x|^2 = |x|^2 for every x; for Srht also if `rows` covers all
// rows of H. A sketch is wide. For a tall Omega, as in A Omega, use the transpose of a wide
// operator.
//
// This and all other functions of operators throw Error{InvalidArgument} for sizes, nnz or a kind
// out of range.
double isometry_scale(const SketchOp& op);

// Returns the same operator with the next stream. Throws Error{InvalidArgument} after the last of
// 2^32 streams.
SketchOp next_stream(const SketchOp& op);

// out [r, c] = S[row0 : row0 + r, col0 : col0 + c] in f32 or f64. An entry has the same bits in
// every requested part and for every thread count. For all kinds except Gaussian, it also has the
// same bits for every instruction set, and f32 is f64 rounded. Normal numbers differ between
// instruction sets by a few roundings. f32 differs from f64 by a few roundings in f32. Normal
// numbers are below 5.8 in magnitude, because radii have 23 random bits.
//
// Throws Error{InvalidArgument} for a part that is not inside S, another type, negative strides, or
// elements of out that share memory.
void materialize(const SketchOp& op, Index row0, Index col0, const TensorView& out,
                 Executor& executor = serial_executor());

// Reference: row-major S in plain loops and double precision.
std::vector<double> materialize_ref(const SketchOp& op);

}  // namespace hone::kernels
