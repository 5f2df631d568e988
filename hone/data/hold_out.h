// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/index.h"

namespace hone::data {

// The fraction of the data that is held out, as 1/n: the last tenth of a text, or every tenth file,
// record or image.
inline constexpr Index kHoldOutEvery = 10;

}  // namespace hone::data
