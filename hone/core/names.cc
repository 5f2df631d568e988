// SPDX-License-Identifier: Apache-2.0
#include "hone/core/names.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace hone {

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

std::string quote_name(std::string_view name) {
  constexpr std::size_t kShown = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (name.size() > kShown) out += "...";
  return out + "'";
}

}  // namespace hone
