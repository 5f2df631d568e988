// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hone/core/function_ref.h"

namespace hone::text {

// Cuts a text with a regular expression (PCRE2, UTF and Unicode properties): every match is a part,
// and so is every stretch between two matches. Invalid UTF-8 never matches. Any thread.
class Splitter {
 public:
  // Patterns come from tokenizer files, written for other engines. \s, \S, \w and \W get the
  // Unicode meaning those engines give them (White_Space; Alphabetic, marks, digits, connectors).
  // Error{Unsupported} naming `where` for what does not compile or means something else here.
  Splitter(std::string_view pattern, std::string_view where);
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;
  ~Splitter();

  // Parts in order; together they are the text. Error{Resource} when the pattern backtracks beyond
  // the limit on this text.
  void split(std::string_view text, FunctionRef<void(std::string_view)> part) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern as PCRE2 gets it.
std::string to_pcre2_pattern(std::string_view pattern, std::string_view where);

// Is this code point part of a word, as \w means it in the engines tokenizer files are written for?
bool is_word_character(std::string_view utf8_character);

}  // namespace hone::text
