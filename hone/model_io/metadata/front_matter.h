// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/core/file/json_io.h"

namespace hone::model_io {

// The YAML between the lines "---" at the start of a Markdown file: mappings, sequences, and every
// scalar as a string, but null for a plain "null", "~" or nothing. An empty object if there is
// none, or with a warning that names `where` if it is no YAML, is larger than 64 KiB or nested more
// than 16 levels deep. Of equal keys the first counts, and an alias is null.
Json read_front_matter(std::string_view markdown, std::string_view where);

}  // namespace hone::model_io
