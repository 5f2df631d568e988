// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hone/core/function_ref.h"

namespace hone::text {

// Splits a text by a regular expression (PCRE2 with UTF and Unicode properties): every match is a
// part, and so is the text between two matches. Invalid UTF-8 never matches. Thread-safe.
class Splitter {
 public:
  // Patterns come from tokenizer files and are written for other engines. \s, \S, \w and \W have
  // the Unicode meaning of those engines (White_Space; Alphabetic, marks, digits, connectors). A
  // pattern that does not compile, or that has another meaning in PCRE2, throws Error{Unsupported}
  // that names `where`.
  Splitter(std::string_view pattern, std::string_view where);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // Yields the parts in order; together they are the text. Throws Error{Resource} if the pattern
  // exceeds the limits on backtracking or on processor time on this text.
  void split(std::string_view text, FunctionRef<void(std::string_view)> part) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern translated for PCRE2.
std::string to_pcre2_pattern(std::string_view pattern, std::string_view where);

// Whether this code point is part of a word, in the meaning that \w has for Splitter.
bool is_word_character(std::string_view utf8_character);

}  // namespace hone::text
