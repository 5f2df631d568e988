// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/thread/executor.h"
#include "hone/kernels/sketch/strided.h"

namespace hone::kernels {

// out [rows, cols] = a [rows, depth] · b [depth, cols] + bias [cols], in f32. The strides of a are
// free. Of b either the rows are contiguous (col_stride == 1) or the columns (row_stride == 1), of
// out the rows. A null bias stands for zeros. out overlaps none of the others.
struct ProductArgs {
  Strided<const float> a, b;
  const float* bias = nullptr;
  Strided<float> out;
};

// For matrices that are used as they lie and are too small in one dimension, about 256 or less, to
// be worth reordering. Where the columns of b are contiguous, that dimension is b.cols.
//
// Every output has one accumulator, which starts from the bias and adds the depth in ascending
// order. Its bits therefore depend neither on the other rows and columns nor on the number of
// threads. Error{InvalidArgument} for sizes that do not fit each other and other strides.
void multiply(const ProductArgs& args, Executor& executor);

// With fewer vectors than this, multiply() reads b, and multiply_columns() a, at the speed of
// memory.
inline constexpr Index kFewVectors = 4;

// The same, meant for fewer than kFewVectors columns of b, where the rows of a and the columns of b
// are contiguous: reads a once. Every output is the sum of the products of interleaved parts of the
// depth. Its bits depend on the vector length of the processor, and otherwise as little as those of
// multiply().
void multiply_columns(const ProductArgs& args, Executor& executor);

}  // namespace hone::kernels
