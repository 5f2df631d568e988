// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include "hone/core/index.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::linalg {

// Returns S [op.rows, op.cols] as a tensor with these options. Types other than f64 are rounded
// from f32, so that no ±1 becomes 0, also in fp16 and bf16. Throws Error{InvalidArgument} for an
// operator out of range, and for a type that is not a real floating-point type.
at::Tensor dense(const kernels::SketchOp& op, const at::TensorOptions& options = {});

// Applies S to every vector along `axis` of x, which gives that axis the size `new_size`. `axis`
// may count from the end. The result has the type and device of x; bf16 and fp16 are summed in f32.
// On the CPU, S is never stored.
//
// If op.rows and op.cols are 0, they are set to these sizes. A sketch makes an axis shorter. A
// larger `new_size` is refused unless op.rows also requests it.
//
// Throws Error{InvalidArgument} for a type that is not a real floating-point type, an axis or a
// size out of range, and rows or cols that differ from the sizes.
at::Tensor sketch_tensor(const at::Tensor& x, Index axis, Index new_size, kernels::SketchOp op);

namespace detail {

// out = S a, or S^T a if transposed, for matrices on the CPU in f32 or f64 with any strides.
void sketch_rows(const kernels::SketchOp& op, bool transposed, const at::Tensor& a,
                 at::Tensor& out);

}  // namespace detail
}  // namespace hone::linalg
