// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include "hone/core/index.h"
#include "hone/kernels/sketch/sketch_op.h"

namespace hone::linalg {

// S [op.rows, op.cols] as a tensor of these options. Types other than f64 are f32 rounded, so that
// no ±1 becomes 0, also in fp16 and bf16. Error{InvalidArgument} on an operator out of range and on
// a type that is not a real floating-point type.
at::Tensor dense(const kernels::SketchOp& op, const at::TensorOptions& options = {});

// Replaces `axis` of x by an axis of `new_size`: S applied to every vector along it. `axis` may
// count from the end. The result has the type and device of x; bf16 and fp16 are summed in f32. S
// is never stored on the CPU.
//
// op.rows and op.cols are filled in where they are 0. A sketch makes an axis shorter; one that
// makes it longer is refused unless op.rows asks for that size too.
//
// Error{InvalidArgument} on a type that is not a real floating-point type, an axis or a size out of
// range, or rows or cols that differ from the sizes.
at::Tensor sketch_tensor(const at::Tensor& x, Index axis, Index new_size, kernels::SketchOp op);

namespace detail {

// out = S a, or S^T a if transposed, for matrices on the CPU in f32 or f64 with any strides.
void sketch_rows(const kernels::SketchOp& op, bool transposed, const at::Tensor& a,
                 at::Tensor& out);

}  // namespace detail
}  // namespace hone::linalg
