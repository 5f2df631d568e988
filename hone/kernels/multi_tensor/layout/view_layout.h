// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// Whether views of one shape have the same strides. Strides of dimensions of size one do not count.
bool same_strides(const TensorView& a, const TensorView& b);

// Whether the view is one block without holes or overlap, in any order of dimensions.
bool is_dense(const TensorView& view);

// Whether two elements of the view may share an address: true for expanded dimensions and for
// strides smaller than what they step over. Does not look for other overlaps, which frameworks do
// not make.
bool overlaps_itself(const TensorView& view);

// [begin, end) of the bytes that a view with elements can touch.
std::pair<std::uintptr_t, std::uintptr_t> byte_range(const TensorView& view);

}  // namespace hone::kernels
