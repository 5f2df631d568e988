// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

namespace hone::kernels {

// S of tam.h between two contiguous f32 tensors of one shape, as pass 1 of a TAM step measures it.
// Error{InvalidArgument}: shapes that differ; Error{Unsupported}: another type or layout.
double cosine(const TensorView& momentum, const TensorView& grad, CosineGuard guard,
              Executor& executor);

// One per row along the last dimension, clamped; `out` has that many values.
void cosine_rows(const TensorView& momentum, const TensorView& grad, Executor& executor,
                 std::span<double> out);

}  // namespace hone::kernels
