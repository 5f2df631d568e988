// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::data {

// Element `index` of a permutation of [0, size) that `key` selects: a balanced Feistel network over
// Philox on the next power of four, iterated until the result is in range (at most 4 times on
// average). It has no state, so any sample of any epoch is computed without the previous ones.
Index permute(Index index, Index size, std::uint64_t key);

}  // namespace hone::data
