// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::kernels {

enum class Transpose { No, Yes };

// out = S A, or S^T A with Transpose::Yes, without S in memory. For A [op.cols, w], out is
// [op.rows, w]; transposed, for A [op.rows, w], out is [op.cols, w]. A and out are both f32 or both
// f64, with any strides, and share no memory. Strides of A may be 0, as in expanded tensors.
//
// Each element of out is a sum in a fixed order over one column of A. It has the same bits for
// every thread count, layout and number of other columns. Unless the operator is dense, it also has
// the same bits for every instruction set.
//
// Sparse kinds cost nnz additions for each element of the longer of A and out. If S has sparse
// columns, S A runs in parallel only over blocks of columns of A, and needs memory for a copy of
// out. The same holds for S^T A if S has sparse rows. Dense kinds generate blocks of S in cache.
// Srht transforms in a buffer for each worker, with a power of two rows that are a cache line wide.
//
// Throws Error{InvalidArgument} for an operator, shape, type or layout that is not as above.
void apply_left(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                const TensorView& out, Executor& executor = serial_executor());

// out = A S, or A S^T with Transpose::Yes. For A [w, op.rows], out is [w, op.cols]; transposed, for
// A [w, op.cols], out is [w, op.rows]. Otherwise like apply_left() on the transposed matrices.
void apply_right(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                 const TensorView& out, Executor& executor = serial_executor());

}  // namespace hone::kernels
