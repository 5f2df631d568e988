// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hone {

// Names a request from its submission to its end. The caller of a queue chooses it.
using RequestId = std::uint64_t;

}  // namespace hone
