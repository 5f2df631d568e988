// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// Copy elements [offset, offset + length) of a fp32 view, in row-major order, to and from dense
// memory.
void copy_from_strided(const TensorView& from, Index offset, Index length, float* to);
void copy_to_strided(const float* from, const TensorView& to, Index offset, Index length);

}  // namespace hone::kernels
