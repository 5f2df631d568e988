// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/sketch/strided.h"

namespace hone::kernels {

// out [rows, cols] = a [rows, depth] · b [depth, cols] + bias [cols], in f32. a may have any
// strides. b must have contiguous rows (col_stride == 1) or columns (row_stride == 1), out
// contiguous rows. A null bias means zeros. out must not overlap the inputs.
struct ProductArgs {
  Strided<const float> a, b;
  const float* bias = nullptr;
  Strided<float> out;
};

// For matrices that are used in place because one dimension, about 256 or less, is too small to
// make reordering worthwhile. If the columns of b are contiguous, that dimension is b.cols.
//
// Every output has one accumulator, which starts from the bias and adds the depth in ascending
// order. Its bits therefore depend neither on the other rows and columns nor on the number of
// threads. Throws Error{InvalidArgument} for sizes that do not match and for other strides.
void multiply(const ProductArgs& args, Executor& executor);

// With fewer vectors than this, multiply() reads b, and multiply_columns() reads a, at memory
// bandwidth.
inline constexpr Index kFewVectors = 4;

// Computes the same product for fewer than kFewVectors columns of b. The rows of a and the columns
// of b must be contiguous. Reads a once. Every output is the sum of the products of interleaved
// parts of the depth. Its bits depend on the vector length of the processor, but not on the other
// rows and columns or on the number of threads.
void multiply_columns(const ProductArgs& args, Executor& executor);

}  // namespace hone::kernels
