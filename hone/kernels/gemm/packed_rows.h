// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/buffer.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/gemm/packed_matrix.h"

namespace hone::kernels {

// Activations x[rows, cols] in the order in which the micro-kernels read them. Packed once for all
// products that share x. The object can be reused; its memory only grows.
//
//   Float32, 1 row    unchanged
//   Float32           [rows/4][cols][4 rows] f32
//   Int8              [rows/4][cols/32] records of 192 bytes: [4 rows][32 columns] int8,
//                     scale[4 rows] f32, [4 rows] pairs of i16 with -Σ of the codes and -Σ of the
//                     first 16, then -8 Σ and -128 Σ of the codes, each [4 rows] i32
// Rows past the end of the last group of four have unspecified values and are never used.
class PackedRows {
 public:
  Act act() const { return act_; }
  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  const std::byte* data() const { return buffer_.data(); }
  Index group_bytes() const { return group_bytes_; }  // between groups of four rows

  // Values of row `row` in the product: x itself, or scale * code. out.size() == cols().
  void unpack_row(Index row, std::span<float> out) const;

 private:
  friend void quantize_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                            Executor& executor);
  friend void interleave_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                              Executor& executor);
  void reshape(Act act, Index rows, Index cols);

  Act act_ = Act::Float32;
  Index rows_ = 0, cols_ = 0, group_bytes_ = 0;
  Buffer buffer_;
};

// Quantizes to symmetric int8 per row and per 32 columns: scale = absmax / 127, code = x / scale
// rounded to nearest even. A row's codes depend only on that row. A block with a value that is not
// finite gets a NaN scale, so that the row's outputs are NaN and not silently wrong. `stride` is
// the number of elements between rows.
void quantize_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                   Executor& executor);
// Like quantize_rows() for Act::Float32: copies x in the order of the kernels.
void interleave_rows(const float* x, Index rows, Index cols, Index stride, PackedRows& out,
                     Executor& executor);

}  // namespace hone::kernels
