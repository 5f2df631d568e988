// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/cache_control.h>

#include <cstddef>
#include <cstdint>

#include "hone/core/index.h"

namespace hone::kernels {

// For loops over long arrays: the hardware's prefetchers stop at page borders. The address is an
// integer because it may be past the end of the array. Inlining is forced because GCC drops calls
// of a function that only prefetches.
HWY_INLINE void prefetch_ahead(const void* from) {
  constexpr std::uintptr_t kAheadBytes = 2048;
  hwy::Prefetch(
      reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(from) + kAheadBytes));
}

// Prefetches every line of the next `bytes` bytes.
HWY_INLINE void prefetch_lines(const void* from, Index bytes) {
  const auto* at = static_cast<const std::byte*>(from);
  for (Index i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(at + i);
}

}  // namespace hone::kernels
