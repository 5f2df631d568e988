// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

// Sums of whole rows of `width` adjacent numbers: `count` vectors with nnz entries each, in the
// format of draw_vectors().
template <class T>
struct SparseRows {
  const std::uint32_t* entries = nullptr;
  Index count = 0, nnz = 0, width = 0;
  const T* from = nullptr;
  Index from_stride = 0;
  T* to = nullptr;
  Index to_stride = 0;
  T scale = 1;  // for gather_rows
};

}  // namespace hone::kernels
