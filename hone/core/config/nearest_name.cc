// SPDX-License-Identifier: Apache-2.0
#include "hone/core/config/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone {
namespace {

constexpr std::size_t kLongestWord = 200;  // bounds the cost
constexpr std::size_t kShortestBeginning = 3;

// The restricted kind of distance: a pair that was swapped is not changed again.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row = before, next = before;
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t substitute = row[j] + (a[i] == b[j] ? 0 : 1);
      next[j + 1] = std::min({substitute, next[j] + 1, row[j + 1] + 1});
      const bool is_swap = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (is_swap) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row.back();
}

// Returns nothing if the words differ too much for a typo.
std::optional<std::size_t> distance_when_near(std::string_view word, std::string_view name) {
  const std::size_t distance = edit_distance(word, name);
  if (3 * distance > std::max(word.size(), name.size())) return std::nullopt;
  return distance;
}

// Whether one of the words is the beginning of the other one.
bool begins_alike(std::string_view a, std::string_view b) {
  const std::size_t length = std::min(a.size(), b.size());
  return length >= kShortestBeginning && a.substr(0, length) == b.substr(0, length);
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
  word = word.substr(0, kLongestWord);
  std::string_view best;
  std::optional<std::size_t> least;
  const auto consider = [&](std::string_view spelling, std::string_view name) {
    const auto distance = distance_when_near(word, spelling);
    if (!distance || (least && *distance >= *least)) return;
    least = distance;
    best = name;
  };
  for (const std::string_view name : known) {
    consider(name, name);
    const std::size_t dot = name.rfind('.');
    if (dot != std::string_view::npos && word.find('.') == std::string_view::npos) {
      consider(name.substr(dot + 1), name);
    }
  }
  if (!best.empty()) return best;
  if (word.find('.') != std::string_view::npos) return {};
  const auto found = std::ranges::find_if(known, [&](std::string_view name) {
    return name.find('.') == std::string_view::npos && begins_alike(word, name);
  });
  return found == known.end() ? std::string_view() : *found;
}

std::vector<std::string_view> nearest_names(std::string_view word,
                                            std::span<const std::string_view> known, Index count) {
  word = word.substr(0, kLongestWord);
  const bool compares_parts = !word.empty() && word.find('.') == std::string_view::npos;
  const auto distance = [&](std::string_view name) {
    std::size_t least = edit_distance(word, name);
    while (compares_parts && !name.empty()) {
      const std::size_t end = std::min(name.find('.'), name.size());
      least = std::min(least, edit_distance(word, name.substr(0, end)));
      name.remove_prefix(std::min(end + 1, name.size()));
    }
    return least;
  };
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (const std::string_view name : known) ranked.emplace_back(distance(name), name);
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::vector<std::string_view> nearest;
  for (const auto& entry : ranked) {
    if (static_cast<Index>(nearest.size()) < count) nearest.push_back(entry.second);
  }
  return nearest;
}

std::string describe_unknown(std::string_view kind, std::string_view word,
                             std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(word, known);
  const std::string unknown = concat("Unknown ", kind, " '", word, "'. ");
  if (!nearest.empty()) return concat(unknown, "Did you mean '", nearest, "'?");
  return concat(unknown, "The known ones are: ", join_names(known), ".");
}

}  // namespace hone
