// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/sketch_draw.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"

namespace hone::kernels {
namespace {

// `count` distinct numbers of [0, size), every set with the same probability. Floyd's method
// (Bentley and Floyd, "A sample of brilliance", 1987) compares each with those before it; many
// numbers are selected in one pass instead (Knuth, "The Art of Computer Programming", 3.4.2,
// algorithm S).
void draw_distinct(PhiloxStream& draws, Index size, Index count, std::uint32_t* out) {
  const auto below = [&](Index bound) { return draws.below(static_cast<std::uint32_t>(bound)); };
  if (count <= 64 || count <= size / count) {
    for (Index i = 0; i < count; ++i) {
      const Index last = size - count + i;
      const std::uint32_t drawn = below(last + 1);
      const bool is_taken = std::find(out, out + i, drawn) != out + i;
      out[i] = is_taken ? static_cast<std::uint32_t>(last) : drawn;
    }
    return;
  }
  Index chosen = 0;
  for (Index at = 0; chosen < count; ++at) {
    if (below(size - at) < count - chosen) out[chosen++] = static_cast<std::uint32_t>(at);
  }
}

}  // namespace

void check_sketch(std::string_view name, const SketchOp& op) {
  HONE_CHECK(op.kind >= SketchKind::Gaussian && op.kind <= SketchKind::Srht, name,
             "a kind of sketch", concat("kind ", static_cast<int>(op.kind)));
  HONE_CHECK(op.rows >= 1 && op.rows <= kMaxSketchSize && op.cols >= 1 && op.cols <= kMaxSketchSize,
             name, concat("rows and cols of 1 to ", kMaxSketchSize),
             concat("[", op.rows, ", ", op.cols, "]"));
  HONE_CHECK(op.kind != SketchKind::Srht || op.rows <= op.cols, name,
             "no more rows than cols in an SRHT", concat("[", op.rows, ", ", op.cols, "]"));
  if (is_dense(op.kind) || op.kind == SketchKind::Srht) return;
  const SparseShape shape = sparse_shape(op);
  HONE_CHECK(shape.nnz >= 1 && shape.nnz <= shape.length, name,
             concat("nnz of 1 to ", shape.length), shape.nnz);
}

double entry_scale(const SketchOp& op) {
  const auto root = [](Index n) { return std::sqrt(static_cast<double>(n)); };
  if (op.scaled) return op.kind == SketchKind::Srht ? 1 / root(op.rows) : isometry_scale(op);
  if (op.kind != SketchKind::Srht) return 1;
  return 1 / root(srht_length(op));
}

PhiloxStream sketch_draws(const SketchOp& op, Index row) {
  const std::uint64_t high = op.stream;
  PhiloxStream draws(op.seed, high << 32 | static_cast<std::uint32_t>(op.kind));
  draws.seek(static_cast<std::uint64_t>(row) << 34);  // 2^32 blocks of four draws
  return draws;
}

SparseShape sparse_shape(const SketchOp& op) {
  const bool is_wide = op.rows <= op.cols;
  SparseShape shape;
  shape.are_columns = op.kind == SketchKind::SparseSign       ? is_wide
                      : op.kind == SketchKind::SparseSignLong ? !is_wide
                                                              : true;
  shape.count = shape.are_columns ? op.cols : op.rows;
  shape.length = shape.are_columns ? op.rows : op.cols;
  shape.nnz = op.kind == SketchKind::CountSketch ? 1 : op.nnz;
  return shape;
}

void draw_vectors(const SketchOp& op, Index first, Index count, std::uint32_t* entries) {
  const SparseShape shape = sparse_shape(op);
  for (Index vector = first; vector < first + count; ++vector, entries += shape.nnz) {
    PhiloxStream draws = sketch_draws(op, vector);
    if (op.kind == SketchKind::Sjlt) {
      for (Index i = 0; i < shape.nnz; ++i) {
        const Index begin = i * shape.length / shape.nnz, end = (i + 1) * shape.length / shape.nnz;
        const std::uint32_t at = draws.below(static_cast<std::uint32_t>(end - begin));
        entries[i] = static_cast<std::uint32_t>(begin) + at;
      }
    } else {
      draw_distinct(draws, shape.length, shape.nnz, entries);
    }
    std::uint32_t signs = 0;
    for (Index i = 0; i < shape.nnz; ++i) {
      if (i % 32 == 0) signs = draws();
      entries[i] = 2 * entries[i] + (signs & 1);
      signs >>= 1;
    }
  }
}

SrhtPlan::SrhtPlan(const SketchOp& op)
    : length(srht_length(op)),
      rows(static_cast<std::size_t>(op.rows)),
      signs(static_cast<std::size_t>(ceil_div(op.cols, 32))) {
  PhiloxStream sign_draws = sketch_draws(op, 0);
  for (std::uint32_t& word : signs) word = sign_draws();
  PhiloxStream row_draws = sketch_draws(op, 1);
  draw_distinct(row_draws, length, op.rows, rows.data());
}

}  // namespace hone::kernels
