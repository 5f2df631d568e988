// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"

namespace hone::kernels {

// How the entries of a random matrix S [rows, cols] are drawn. The sparse kinds draw vectors with
// `nnz` entries ±1 at distinct positions; unlike in libraries that draw positions with replacement,
// there are never fewer.
enum class SketchKind {
  Gaussian,        // independent and standard normal
  Rademacher,      // independent, ±1
  SparseSign,      // a vector along the short side for each index of the long side
  SparseSignLong,  // a vector along the long side for each index of the short side
  CountSketch,     // ±1 in one row of each column (Clarkson and Woodruff, arXiv 1207.6365)
  // A column has ±1 in one row of each of nnz blocks of rows, whose sizes differ by at most 1 (the
  // block construction of OSNAP: Nelson and Nguyen, arXiv 1211.1002).
  Sjlt,
  // `rows` distinct rows of H D (Tropp, arXiv 1011.1595): D has random signs, H is the first
  // `cols` columns of the orthonormal Hadamard matrix of the next power of two. Every entry has
  // the same size, and so has every column of S, whatever `cols` is. (A block diagonal H of the
  // powers of two in `cols` would need no padding, but where `cols` is 2^k + 1 would drop the last
  // coordinate unless its one row is drawn.) rows <= cols.
  Srht,
};

// A random matrix as a value: each entry is a pure function of the fields and its place, by the
// generator Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). It has
// exactly the shape that is asked for, also where rows exceed cols.
struct SketchOp {
  SketchKind kind = SketchKind::Gaussian;
  Index rows = 0, cols = 0;  // in [1, kMaxSketchSize]
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // operators of one seed that differ in it share no random bits
  Index nnz = 1;             // of SparseSign, SparseSignLong, Sjlt: in [1, length of a vector]
  // Multiplies by isometry_scale. Otherwise entries are as listed at SketchKind; those of Srht are
  // ±1/sqrt(length of H).
  bool scaled = true;

  friend bool operator==(const SketchOp&, const SketchOp&) = default;
};

inline constexpr Index kMaxSketchSize = Index{1} << 30;

// The factor that makes E|S x|^2 = |x|^2 for every x, for Srht also where rows are all rows of H.
// A sketch is wide; for a tall Omega, as in A Omega, take the transpose of a wide operator.
//
// This and all other functions of operators: Error{InvalidArgument} on sizes, nnz or a kind out of
// range.
double isometry_scale(const SketchOp& op);

// The same operator with the next stream. Error{InvalidArgument} after the last of 2^32 streams.
SketchOp next_stream(const SketchOp& op);

// out [r, c] = S[row0 : row0 + r, col0 : col0 + c] in f32 or f64. An entry has the same bits
// whichever part is asked for, for every thread count. Without Gaussian it has the same bits for
// every instruction set, and f32 is f64 rounded; normal numbers differ by a few roundings, of which
// f32 differs from f64 by a few roundings in f32. Their sizes are below 5.8, because radii have 23
// random bits.
//
// Error{InvalidArgument} on a part that is not inside S, another type, negative strides, or
// elements of out that share memory.
void materialize(const SketchOp& op, Index row0, Index col0, const TensorView& out,
                 Executor& executor = serial_executor());

// Row-major S in plain loops and double precision.
std::vector<double> materialize_ref(const SketchOp& op);

}  // namespace hone::kernels
