// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "hone/core/function_ref.h"
#include "hone/core/index.h"

namespace hone::compress {

// The smallest of a sequence of values: all that are below `value`, and the first `ties` of those
// that equal it.
struct Threshold {
  float value = 0;
  Index ties = 0;
};

using ValueSink = FunctionRef<void(std::span<const float>)>;

// Finds the `count` smallest values exactly, for any number of values and without a copy of them:
// numbers that are not negative are ordered like their bits, of which the first pass counts the
// upper half and the second one the lower half. `visit` passes all values to its argument, in the
// same order each time. Throws Error{InvalidArgument} for negative values, NaN, or a count above
// the number of values.
Threshold find_threshold(Index count, FunctionRef<void(ValueSink)> visit);

// Sets the `count` smallest values to 0 and the others to 1 in `mask`. Among equal values, earlier
// ones count as smaller.
void mark_largest(std::span<const float> values, Index count, std::span<std::uint8_t> mask);

}  // namespace hone::compress
