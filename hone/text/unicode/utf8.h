// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::text {

struct CodePoint {
  char32_t value = 0;
  int bytes = 0;  // 0 if no valid code point starts here
};

// The code point at the start of `text`; overlong forms, surrogates and values above U+10FFFF are
// invalid.
CodePoint decode_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

// The length of the longest valid UTF-8 prefix.
std::size_t valid_utf8_prefix(std::string_view text);
inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

// For a `text` that starts with no valid code point: the number of bytes that one U+FFFD replaces
// (the "maximal subpart" of Unicode 15, section 3.9), or 0 if a code point might continue past the
// end of `text`.
std::size_t invalid_utf8_prefix(std::string_view text);

// Whether the code point has the Unicode property White_Space.
bool is_white_space(char32_t code_point);

}  // namespace hone::text
