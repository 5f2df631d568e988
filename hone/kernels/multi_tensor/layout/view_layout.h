// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// Returns true if views of one shape have the same strides, ignoring dimensions of size one.
bool same_strides(const TensorView& a, const TensorView& b);

// Returns true if the view is one block without holes or overlap, in any order of dimensions.
bool is_dense(const TensorView& view);

// Returns true if two elements of the view may share an address: for expanded dimensions, and for
// strides smaller than the part that they step over. Does not find other overlaps, which frameworks
// do not make.
bool overlaps_itself(const TensorView& view);

// Returns the range [begin, end) of bytes that a view with elements can touch.
std::pair<std::uintptr_t, std::uintptr_t> byte_range(const TensorView& view);

}  // namespace hone::kernels
