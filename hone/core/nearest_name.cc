// SPDX-License-Identifier: Apache-2.0
#include "hone/core/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace hone {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
  const auto best = std::ranges::min_element(known, {}, [word](std::string_view name) {
    return edit_distance(word.substr(0, 200), name);
  });
  return best == known.end() ? std::string_view() : *best;
}

}  // namespace hone
