// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hone {

// The type of all sizes, offsets and loop bounds in hone: signed 64-bit, so that differences are
// safe.
using Index = std::int64_t;

constexpr Index kCacheLine = 64;

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace hone
