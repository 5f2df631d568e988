// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "hone/core/index.h"

namespace hone::data {

// Position `index` of a permutation of [0, size) chosen by `key`: a balanced Feistel network over
// Philox on the next power of four, walked until it falls inside (at most 4 rounds expected). O(1)
// state, so any sample of any epoch is found without those before it.
Index permute(Index index, Index size, std::uint64_t key);

}  // namespace hone::data
