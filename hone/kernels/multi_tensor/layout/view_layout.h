// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// Of views of one shape. Strides of dimensions of size one mean nothing.
bool same_strides(const TensorView& a, const TensorView& b);

// One block without holes or overlap, in whatever order of dimensions?
bool is_dense(const TensorView& view);

// Does an element of the view share its address with another one? Sufficient for what frameworks
// make: expanded dimensions, and strides smaller than what they step over.
bool overlaps_itself(const TensorView& view);

// [begin, end) of the bytes that a view with elements can touch.
std::pair<std::uintptr_t, std::uintptr_t> byte_range(const TensorView& view);

}  // namespace hone::kernels
