// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::data {

// One part in this many of any data is held out: the last tenth of a text, every tenth file, record
// or image.
inline constexpr Index kHoldOutEvery = 10;

}  // namespace hone::data
