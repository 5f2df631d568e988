// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "hone/core/tensor_view.h"
#include "hone/kernels/sketch/sketch_op.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::test {

// A matrix in memory of its own: by rows or by columns, with `gap` numbers between.
template <class T>
struct Matrix {
  Index rows = 0, cols = 0, row_stride = 0, col_stride = 0;
  std::vector<T> values;

  Matrix(Index rows_in, Index cols_in, bool by_columns = false, Index gap = 0)
      : rows(rows_in),
        cols(cols_in),
        row_stride(by_columns ? 1 : cols + gap),
        col_stride(by_columns ? rows + gap : 1),
        values(static_cast<std::size_t>((by_columns ? cols : rows) *
                                        ((by_columns ? rows : cols) + gap)),
               T{-77}) {}

  T& operator()(Index i, Index j) {
    return values[static_cast<std::size_t>(i * row_stride + j * col_stride)];
  }
  TensorView view() {
    const Dtype dtype = std::is_same_v<T, float> ? Dtype::Float32 : Dtype::Float64;
    return {values.data(), dtype, {rows, cols}, {row_stride, col_stride}};
  }
  void fill(std::uint64_t seed) {
    PhiloxStream random(seed);
    for (T& value : values) value = static_cast<T>(2 * random.uniform() - 1);
  }
  // Whole numbers, whose sums are exact.
  void fill_integers(std::uint64_t seed) {
    PhiloxStream random(seed);
    for (T& value : values) value = static_cast<T>(static_cast<int>(random.below(17)) - 8);
  }
};

// The bits of the elements agree, whatever the layouts.
template <class T>
void expect_same(Matrix<T>& got, Matrix<T>& want, const std::string& what) {
  ASSERT_EQ(got.rows, want.rows) << what;
  ASSERT_EQ(got.cols, want.cols) << what;
  for (Index i = 0; i < got.rows; ++i) {
    for (Index j = 0; j < got.cols; ++j)
      ASSERT_EQ(got(i, j), want(i, j)) << what << " at " << i << ", " << j;
  }
}

inline constexpr SketchKind kAllKinds[] = {SketchKind::Gaussian,    SketchKind::Rademacher,
                                           SketchKind::SparseSign,  SketchKind::SparseSignLong,
                                           SketchKind::CountSketch, SketchKind::Sjlt,
                                           SketchKind::Srht};

inline std::string name_of(SketchKind kind) {
  constexpr const char* kNames[] = {"Gaussian",    "Rademacher", "SparseSign", "SparseSignLong",
                                    "CountSketch", "Sjlt",       "Srht"};
  return kNames[static_cast<int>(kind)];
}

inline std::string text_of(const SketchOp& op) {
  return name_of(op.kind) + " [" + std::to_string(op.rows) + ", " + std::to_string(op.cols) +
         "] nnz " + std::to_string(op.nnz);
}

// Every kind in this shape, three entries in sparse vectors where they fit.
inline std::vector<SketchOp> all_ops(Index rows, Index cols, std::uint64_t seed = 5) {
  std::vector<SketchOp> ops;
  for (const SketchKind kind : kAllKinds) {
    if (kind == SketchKind::Srht && rows > cols) continue;
    const Index nnz = std::min<Index>(3, std::min(rows, cols));
    ops.push_back({.kind = kind, .rows = rows, .cols = cols, .seed = seed, .nnz = nnz});
  }
  return ops;
}

inline Matrix<double> matrix_of(const SketchOp& op) {
  Matrix<double> out(op.rows, op.cols);
  materialize(op, 0, 0, out.view());
  return out;
}

}  // namespace hone::kernels::test
