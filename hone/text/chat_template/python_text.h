// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/chat_template/value.h"

// How Python spells values, and what its strings do.
namespace hone::text {

MarkedText to_str(const Value& value);   // str(value)
MarkedText to_repr(const Value& value);  // repr(value)

struct JsonSpelling {
  int indent = -1;  // below 0: one line
  bool ensure_ascii = false, sort_keys = false;
  std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps(value). Throws Error{InvalidArgument} for values that JSON does not have.
MarkedText to_json(const Value& value, const JsonSpelling& spelling);

// Where each character begins; the last entry is the size. A byte that is part of no character
// counts as one.
std::vector<std::size_t> characters(std::string_view text);
bool is_python_space(char32_t character);

enum class Side { Left, Right, Both };
// Without `set`, white space goes.
MarkedText strip(const MarkedText& text, Side side, const std::string* set);
// Without a separator, runs of white space separate. `most` splits; -1: all.
ValueList split(const MarkedText& text, const std::string* separator, std::int64_t most,
                bool from_right);
ValueList split_lines(const MarkedText& text);
MarkedText replace(const MarkedText& text, std::string_view old, const MarkedText& with,
                   std::int64_t most);
// Only ASCII letters change. Words of Title are runs of letters; those of TitleWords end with white
// space, - and opening brackets.
enum class LetterCase { Upper, Lower, Capitalized, Title, TitleWords };
MarkedText change_case(const MarkedText& text, LetterCase letter_case);

}  // namespace hone::text
