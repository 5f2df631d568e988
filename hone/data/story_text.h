// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace hone::data {

// The rules of the built-in stories, in the notation of docs/story-grammar.md.
extern const std::string_view kStoryText;

}  // namespace hone::data
