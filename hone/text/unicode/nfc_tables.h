// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hone::text {

// Canonical decompositions into one (second = 0) or two code points, without Hangul syllables.
struct Decomposition {
  char32_t code, first, second;
};
extern const Decomposition kDecompositions[];  // ascending code
extern const int kDecompositionCount;

// Code points [first, last] of one canonical combining class; all others have class 0.
struct CombiningRange {
  char32_t first, last;
  std::uint8_t combining_class;
};
extern const CombiningRange kCombiningRanges[];  // ascending
extern const int kCombiningRangeCount;

// Code points that decompose into two but are never composed.
extern const char32_t kCompositionExclusions[];  // ascending
extern const int kCompositionExclusionCount;

}  // namespace hone::text
