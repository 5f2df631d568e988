// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/byte_trie.h"

#include <algorithm>

namespace hone::infer::grammar {

ByteTrie::ByteTrie(const std::vector<std::string>& strings) {
  if (strings.empty()) return;
  nodes_.push_back({.end = static_cast<std::uint32_t>(strings.size())});
  std::size_t level_begin = 0, level_end = 1;
  for (std::size_t depth = 0; level_begin < level_end; ++depth) {
    for (std::size_t node = level_begin; node < level_end; ++node) {
      std::uint32_t begin = nodes_[node].begin;
      const std::uint32_t end = nodes_[node].end;
      nodes_[node].ends = strings[begin].size() == depth;
      begin += nodes_[node].ends;
      nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
      while (begin < end) {
        const char byte = strings[begin][depth];
        std::uint32_t stop = begin;
        while (stop < end && strings[stop][depth] == byte) ++stop;
        nodes_.push_back({.begin = begin, .end = stop, .byte = static_cast<std::uint8_t>(byte)});
        ++nodes_[node].child_count;
        begin = stop;
      }
    }
    level_begin = level_end;
    level_end = nodes_.size();
  }
}

std::optional<std::uint32_t> ByteTrie::child(std::uint32_t node, std::uint8_t byte) const {
  const Node& parent = nodes_[node];
  const auto first = nodes_.begin() + parent.first_child;
  const auto last = first + parent.child_count;
  const auto found = std::lower_bound(
      first, last, byte, [](const Node& child, std::uint8_t value) { return child.byte < value; });
  if (found == last || found->byte != byte) return std::nullopt;
  return static_cast<std::uint32_t>(found - nodes_.begin());
}

}  // namespace hone::infer::grammar
