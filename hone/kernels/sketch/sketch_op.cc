// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/sketch_op.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/sketch/dense_rows.h"
#include "hone/kernels/sketch/sketch_draw.h"
#include "hone/kernels/sketch/strided.h"

namespace hone::kernels {
namespace {

// A part of S from (row, col) on.
template <class T>
struct Part {
  const SketchOp& op;
  Index row = 0, col = 0;
  Strided<T> out;
};

template <class T>
void fill_dense_part(const Part<T>& part, Executor& executor) {
  constexpr Index kCols = 256;
  const Strided<T>& out = part.out;
  executor.parallel_for(out.rows, rows_per_chunk(out.cols), [&](Index begin, Index end, int) {
    DensePart row{.rows = 1, .scale = entry_scale(part.op)};
    T values[kCols];
    for (Index i = begin; i < end; ++i) {
      row.row0 = part.row + i;
      for (Index j = 0; j < out.cols; j += kCols) {
        row.col0 = part.col + j;
        row.cols = std::min(kCols, out.cols - j);
        const bool is_direct = out.col_stride == 1;
        fill_dense(part.op, row, is_direct ? &out(i, j) : values);
        if (is_direct) continue;
        for (Index at = 0; at < row.cols; ++at) out(i, j + at) = values[at];
      }
    }
  });
}

template <class T>
void fill_sparse_part(const Part<T>& part, Executor& executor) {
  const SparseShape shape = sparse_shape(part.op);
  // A row of `out` per vector.
  const Strided<T> out = shape.are_columns ? part.out.transposed() : part.out;
  const Index vector0 = shape.are_columns ? part.col : part.row;
  const Index position0 = shape.are_columns ? part.row : part.col;
  const auto size = static_cast<T>(entry_scale(part.op));
  executor.parallel_for(out.rows, rows_per_chunk(out.cols), [&](Index begin, Index end, int) {
    std::vector<std::uint32_t> entries(static_cast<std::size_t>(shape.nnz));
    for (Index i = begin; i < end; ++i) {
      for (Index j = 0; j < out.cols; ++j) out(i, j) = 0;
      draw_vectors(part.op, vector0 + i, 1, entries.data());
      for (const std::uint32_t entry : entries) {
        const Index position = static_cast<Index>(entry >> 1) - position0;
        if (position >= 0 && position < out.cols) out(i, position) = entry & 1 ? -size : size;
      }
    }
  });
}

template <class T>
void fill_srht_part(const Part<T>& part, Executor& executor) {
  const SrhtPlan plan(part.op);
  const Strided<T>& out = part.out;
  const auto size = static_cast<T>(entry_scale(part.op));
  executor.parallel_for(out.rows, rows_per_chunk(out.cols), [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) {
      const std::uint32_t row = plan.rows[static_cast<std::size_t>(part.row + i)];
      for (Index j = 0; j < out.cols; ++j) {
        const auto col = static_cast<std::uint32_t>(part.col + j);
        const bool is_negative = (std::popcount(row & col) % 2 != 0) != plan.is_negative(col);
        out(i, j) = is_negative ? -size : size;
      }
    }
  });
}

template <class T>
void fill_part(const Part<T>& part, Executor& executor) {
  if (is_dense(part.op.kind)) {
    fill_dense_part(part, executor);
  } else if (part.op.kind == SketchKind::Srht) {
    fill_srht_part(part, executor);
  } else {
    fill_sparse_part(part, executor);
  }
}

}  // namespace

double isometry_scale(const SketchOp& op) {
  check_sketch("isometry_scale", op);
  const auto rows = static_cast<double>(op.rows), cols = static_cast<double>(op.cols);
  if (is_dense(op.kind)) return 1 / std::sqrt(rows);
  if (op.kind == SketchKind::Srht) return std::sqrt(static_cast<double>(srht_length(op)) / rows);
  const SparseShape shape = sparse_shape(op);
  const auto nnz = static_cast<double>(shape.nnz);
  return shape.are_columns ? 1 / std::sqrt(nnz) : std::sqrt(cols / (nnz * rows));
}

SketchOp next_stream(const SketchOp& op) {
  check_sketch("next_stream", op);
  HONE_REQUIRE(op.stream < std::numeric_limits<std::uint32_t>::max(), "next_stream",
               "The last of 2^32 streams has no successor.");
  SketchOp next = op;
  ++next.stream;
  return next;
}

void materialize(const SketchOp& op, Index row0, Index col0, const TensorView& out,
                 Executor& executor) {
  constexpr std::string_view kOp = "materialize";
  check_sketch(kOp, op);
  check_output(kOp, "out", out);
  const Index rows = out.shape[0], cols = out.shape[1];
  HONE_CHECK(row0 >= 0 && col0 >= 0 && row0 <= op.rows && col0 <= op.cols &&
                 rows <= op.rows - row0 && cols <= op.cols - col0,
             kOp, concat("a part of [", op.rows, ", ", op.cols, "]"),
             concat("[", rows, ", ", cols, "] from [", row0, ", ", col0, "] on"));
  HONE_TRACE_ZONE("materialize", {"rows", rows}, {"cols", cols});
  if (out.dtype == Dtype::Float32) {
    fill_part<float>({op, row0, col0, as_strided<float>(out)}, executor);
  } else {
    fill_part<double>({op, row0, col0, as_strided<double>(out)}, executor);
  }
}

}  // namespace hone::kernels
