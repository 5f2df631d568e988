// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace hone {

// ‖got − want‖ / ‖want‖ in f64; the norm of `got` if `want` is zero. Shapes must be equal.
double relative_error(const at::Tensor& got, const at::Tensor& want);

}  // namespace hone
