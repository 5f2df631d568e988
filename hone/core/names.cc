// SPDX-License-Identifier: Apache-2.0
#include "hone/core/names.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "hone/core/check.h"

namespace hone {
namespace {

void append_hex(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

// The bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = lead < 0x80                    ? 1
                            : lead >= 0xc2 && lead <= 0xdf ? 2
                            : (lead & 0xf0) == 0xe0        ? 3
                            : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                           : 0;
  if (bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

// C0, DEL, or C1 (U+0080 to U+009F) in two bytes.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

Index find_duplicate(Index n, FunctionRef<std::string_view(Index)> name) {
  // Sorting hashes instead of strings keeps a million names cache-friendly. Names are compared only
  // where hashes are equal, and sorted there, so collisions do not make it quadratic.
  std::vector<std::pair<std::size_t, Index>> order;
  order.reserve(static_cast<std::size_t>(n));
  for (Index i = 0; i < n; ++i) order.emplace_back(std::hash<std::string_view>{}(name(i)), i);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const int names = name(a.second).compare(name(b.second));
    return names != 0 ? names < 0 : a.second < b.second;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i].first == order[i - 1].first && name(order[i].second) == name(order[i - 1].second))
      return order[i].second;
  }
  return -1;
}

std::string escape_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(bytes, 1));
    if (bytes > 0 && !is_control(character)) {
      out += character;
    } else {
      for (const char c : character) append_hex(out, c);
    }
    text.remove_prefix(character.size());
  }
  return out;
}

std::string quote_name(std::string_view name) {
  constexpr std::size_t kShown = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      append_hex(out, c);
    }
  }
  if (name.size() > kShown) out += "...";
  return out + "'";
}

std::string join_names(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) list += concat(list.empty() ? "" : ", ", name);
  return list;
}

}  // namespace hone
