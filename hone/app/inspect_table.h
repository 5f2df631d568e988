// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"

namespace hone::app {

// The document of inspect_file() for people: what the model is, and its types of tensors. With
// `each`, also every field of the architecture and every tensor, as with the figures of --stats.
std::string describe_inspection(const Json& document, bool each = false);

}  // namespace hone::app
