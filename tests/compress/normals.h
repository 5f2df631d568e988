// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "hone/core/philox.h"

namespace hone::compress {

// Draws of a standard normal.
inline std::vector<float> normals(Index count, std::uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) {
    value = static_cast<float>(std::sqrt(-2 * std::log(random.uniform_double())) *
                               std::cos(2 * std::numbers::pi * random.uniform_double()));
  }
  return out;
}

}  // namespace hone::compress
