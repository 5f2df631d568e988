// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"

namespace hone::app {

// Formats the document of inspect_file() as readable text: a summary of the model and its types of
// tensors. With `each`, adds every field of the architecture and every tensor. Tensors are also
// listed if the document has the figures of --stats.
std::string describe_inspection(const Json& document, bool each = false);

}  // namespace hone::app
