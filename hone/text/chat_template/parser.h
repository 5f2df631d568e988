// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "hone/text/chat_template/syntax.h"

namespace hone::text {

// Parses a Jinja template: if, for, set, macro, call, filter, break, continue, generation, and all
// expressions. Throws Error{CorruptFile} for text that is no template, and Error{Unsupported} for
// other tags, filters and tests; both name `where` and the line.
Block parse_template(std::string_view source, std::string_view where);

}  // namespace hone::text
