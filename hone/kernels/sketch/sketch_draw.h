// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of sketch operators: the numbering of random bits and the sparse vectors.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hone/core/philox.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::kernels {

// Throws Error{InvalidArgument} that begins with [name] if `op` is not valid.
void check_sketch(std::string_view name, const SketchOp& op);

// Returns the factor for entries as listed at SketchKind; for Srht, the magnitude of an entry.
double entry_scale(const SketchOp& op);

constexpr bool is_dense(SketchKind kind) {
  return kind == SketchKind::Gaussian || kind == SketchKind::Rademacher;
}

// Block `block` of row or vector `row` has the Philox counter {block, row, kind, stream}, so that
// neither operators nor rows share blocks.
constexpr PhiloxBlock sketch_counter(const SketchOp& op, Index row, Index block) {
  return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(row),
          static_cast<std::uint32_t>(op.kind), op.stream};
}
// Returns the same blocks as a stream of draws, from block 0 on.
PhiloxStream sketch_draws(const SketchOp& op, Index row);

// Number of entries of a Gaussian row per block, and number of signs per block.
inline constexpr Index kGaussiansPerBlock = 4, kSignsPerBlock = 128;

// The vectors of a sparse operator.
struct SparseShape {
  bool are_columns = true;  // columns of S, otherwise rows
  Index count = 0, length = 0, nnz = 1;
};
SparseShape sparse_shape(const SketchOp& op);

// Writes the entries of vectors [first, first + count) of a sparse operator, nnz for each: 2 *
// position + (1 if the sign is negative).
void draw_vectors(const SketchOp& op, Index first, Index count, std::uint32_t* entries);

// Returns the number of rows of the Hadamard matrix of an Srht.
constexpr Index srht_length(const SketchOp& op) {
  return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(op.cols)));
}

// The random parts of an Srht.
struct SrhtPlan {
  explicit SrhtPlan(const SketchOp& op);

  bool is_negative(Index col) const {
    return signs[static_cast<std::size_t>(col / 32)] >> (col % 32) & 1;
  }

  Index length = 0;                  // number of rows of H
  std::vector<std::uint32_t> rows;   // op.rows distinct rows of H
  std::vector<std::uint32_t> signs;  // a bit for each column, the lowest first; 1 is negative
};

}  // namespace hone::kernels
