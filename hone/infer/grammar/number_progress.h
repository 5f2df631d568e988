// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/infer/grammar/decimal.h"

namespace hone::infer::grammar {

// The part of a number that has been read, and how its digits compare with those of the bounds.
struct NumberProgress {
  std::uint8_t whole = 0, fraction = 0;  // digits read
  std::int8_t low = 0, high = 0;         // -1, 0, 1: below, equal to, above the bound so far
  bool negative = false, has_point = false, leading_zero = false;
  friend bool operator==(const NumberProgress&, const NumberProgress&) = default;
};

// Reads a digit or the point, after the sign. Returns false, with `progress` unspecified, if no
// magnitude of the range continues that way.
bool read_digit(const MagnitudeRange& range, std::uint8_t byte, NumberProgress& progress);

// Whether the number may end here: the magnitude read so far is in the range.
bool can_end(const MagnitudeRange& range, const NumberProgress& progress);

}  // namespace hone::infer::grammar
