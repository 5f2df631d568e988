// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hone::infer::grammar {

// A set of code points: sorted ranges that do not touch, both ends included.
using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

inline constexpr std::uint32_t kNoMost = 0xffffffff;

// The syntax tree of a regular expression.
struct Regex {
  enum class Kind { Set, Sequence, Choice, Repeat, Begin, End } kind = Kind::Sequence;
  CodePoints set{};
  std::vector<Regex> parts{};
  std::uint32_t least = 0, most = 0;  // Repeat; kNoMost: without limit
};

// Parses the regular expressions of JSON Schema (ECMA-262 with the u flag), without look-around,
// back references, word boundaries and \p. Greedy and lazy quantifiers match the same texts. Throws
// Error{Unsupported} that names `pointer` for what is left out and for more than 4,096 bytes, and
// Error{InvalidArgument} for a malformed pattern.
Regex parse_regex(std::string_view pattern, std::string_view pointer);

}  // namespace hone::infer::grammar
