// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::kernels {

enum class Transpose { No, Yes };

// out = S A, or S^T A where transposed, without S in memory: A [op.cols, w] gives out
// [op.rows, w], transposed A [op.rows, w] gives out [op.cols, w]. A and out are both f32 or both
// f64, with any strides (A also of 0, as where it is expanded), and share no memory.
//
// Each element of out is a sum in a fixed order over one column of A. It has the same bits for
// every thread count, layout and number of other columns and, unless the operator is dense, for
// every instruction set.
//
// Sparse kinds cost nnz additions for each element of the longer of A and out. Where S has sparse
// columns, S A runs in parallel over blocks of columns of A only, and takes memory for a copy of
// out; so does S^T A where S has sparse rows. Dense kinds generate blocks of S in cache. Srht
// transforms in a buffer of a power of two rows, a cache line wide, for each worker.
//
// Error{InvalidArgument} on an operator, shape, type or layout that is not as above.
void apply_left(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                const TensorView& out, Executor& executor = serial_executor());

// out = A S, or A S^T where transposed: A [w, op.rows] gives out [w, op.cols], transposed A
// [w, op.cols] gives out [w, op.rows]. As apply_left to the transposed matrices.
void apply_right(const SketchOp& op, Transpose transpose, const ConstTensorView& a,
                 const TensorView& out, Executor& executor = serial_executor());

}  // namespace hone::kernels
