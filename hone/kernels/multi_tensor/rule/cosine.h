// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/rule/tam.h"

namespace hone::kernels {

// Returns S of tam.h between two contiguous f32 tensors of one shape, as pass 1 of a TAM step
// measures it. Throws Error{InvalidArgument} for different shapes, and Error{Unsupported} for
// another type or layout.
double cosine(const TensorView& momentum, const TensorView& grad, CosineGuard guard,
              Executor& executor);

// Writes one clamped value per row along the last dimension. `out` must have one entry per row.
void cosine_rows(const TensorView& momentum, const TensorView& grad, Executor& executor,
                 std::span<double> out);

}  // namespace hone::kernels
