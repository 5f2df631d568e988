// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone {

// Bytes of this process that are in memory now, and the most since the start or since the last
// reset_resident_peak(). 0 where the system does not tell.
Index resident_bytes();
Index peak_resident_bytes();
// Returns false if the system does not allow it.
bool reset_resident_peak();
// Gives memory that the allocator keeps back to the system.
void release_free_memory();

}  // namespace hone
