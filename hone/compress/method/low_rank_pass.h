// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/compress/pass.h"
#include "hone/compress/recipe.h"

namespace hone::compress {

// Replaces the products of layers whose matrices are all named by two thin matrices each
// (method/low_rank.h): q, k and v together, and gate and up. A product whose factors would have as
// many weights as it has stays as it is. Passes behind it quantize the factors. The rank is rounded
// up to a multiple of 32, so that block formats take it, or of 16 below 32.
std::unique_ptr<Pass> make_pass(const LowRankPass& options, const Recipe& recipe);

}  // namespace hone::compress
