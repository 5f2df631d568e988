// SPDX-License-Identifier: Apache-2.0
#include "hone/core/config/toml_limits.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone {
namespace {

constexpr int kMaxParts = 32;

// The position after the string that starts with the quote at `at`, or the end of the text if the
// string is not closed.
std::size_t skip_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string_view triple = text.substr(at, 3);
  const bool is_long = triple.size() == 3 && triple[1] == quote && triple[2] == quote;
  at += is_long ? 3 : 1;
  while (at < text.size()) {
    if (text[at] == '\\' && quote == '"') {
      at += 2;
    } else if (text[at] != quote) {
      if (text[at] == '\n' && !is_long) return at;
      ++at;
    } else if (!is_long || text.substr(at, 3) == triple) {
      return at + (is_long ? 3 : 1);
    } else {
      ++at;
    }
  }
  return text.size();
}

}  // namespace

void check_toml_keys(std::string_view text, std::string_view where) {
  int dots = 0;
  Index line = 1;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::size_t end = skip_string(text, at);
      for (; at < end; ++at) line += text[at] == '\n';
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    const bool in_key = c == '.' || c == ' ' || c == '\t' || c == '-' || c == '_' ||
                        (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    dots = c == '.' ? dots + 1 : in_key ? dots : 0;
    if (dots >= kMaxParts) {
      fail_argument(concat(where, ":", line), concat("keys of at most ", kMaxParts, " parts"),
                    "more");
    }
    line += c == '\n';
    ++at;
  }
}

}  // namespace hone
