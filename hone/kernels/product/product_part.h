// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/kernels/product/product.h"

namespace hone::kernels {

// The depth that is added at once: a panel of this depth and 32 columns fills a level-1 cache.
inline constexpr Index kProductDepth = 256;

// A part of the result, for one task.
struct ProductPart {
  Index rows_begin = 0, rows_end = 0, cols_begin = 0, cols_end = 0;
};

}  // namespace hone::kernels
