// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace hone::text {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // "▁", SentencePiece's visible space

// The patterns by which a tokenizer.json's Replace normalizers express remove_extra_whitespaces, in
// this order: the first is replaced by nothing, the second by one space. Only at the end of a text
// does SentencePiece treat marks in the text itself as spaces.
constexpr std::string_view kOuterSpaces = "\\A +|[ \xE2\x96\x81]+\\z";
constexpr std::string_view kInnerSpaces = " {2,}";

inline std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const auto found = text.find(from);
    out.append(text.substr(0, found));
    if (found == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(found + from.size());
  }
}

inline std::string mark_spaces(std::string_view text) { return replace_all(text, " ", kSpaceMark); }
inline std::string unmark_spaces(std::string_view piece) {
  return replace_all(piece, kSpaceMark, " ");
}

}  // namespace hone::text
