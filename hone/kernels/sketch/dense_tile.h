// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::kernels {

// Columns of the widest panel: two vectors of 64 bytes.
template <class T>
inline constexpr Index kWidestPanel = 2 * kCacheLine / Index{sizeof(T)};

// sums [rows, width] += weights [rows, depth] b [depth, width]. Rows of sums have space for `width`
// rounded up to kWidestPanel numbers; the contents after `width` are undefined.
template <class T>
struct DenseTile {
  const T* weights = nullptr;
  Index row_step = 0, depth_step = 0;  // strides of weights
  Index rows = 0, depth = 0, width = 0;
  const T* b = nullptr;
  Index b_row_stride = 0, b_col_stride = 0;
  T* sums = nullptr;
  Index sum_stride = 0;
  T* panel = nullptr;  // scratch of depth * kWidestPanel
};

}  // namespace hone::kernels
