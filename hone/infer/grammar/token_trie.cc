// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_trie.h"

#include <algorithm>

namespace hone::infer::grammar {

TokenTrie make_token_trie(const std::vector<std::string>& strings, std::vector<std::int32_t> ids) {
  const auto string_of = [&](std::int32_t id) -> const std::string& {
    return strings[static_cast<std::size_t>(id)];
  };
  std::ranges::sort(ids, {}, string_of);
  TokenTrie trie;
  std::vector<std::uint32_t> open;  // the nodes that lead to the last string
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      trie.nodes[open.back()].skip = static_cast<std::uint32_t>(trie.nodes.size());
    }
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string& bytes = string_of(ids[i]);
    std::size_t common = 0;
    while (common < std::min(open.size(), bytes.size()) &&
           trie.nodes[open[common]].byte == static_cast<std::uint8_t>(bytes[common])) {
      ++common;
    }
    close(common);
    for (std::size_t depth = common; depth < bytes.size(); ++depth) {
      open.push_back(static_cast<std::uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({.byte = static_cast<std::uint8_t>(bytes[depth]),
                            .depth = static_cast<std::uint16_t>(depth),
                            .first = static_cast<std::uint32_t>(i),
                            .last = static_cast<std::uint32_t>(i)});
    }
    trie.nodes[open.back()].last = static_cast<std::uint32_t>(i + 1);
  }
  close(0);
  trie.ids = std::move(ids);
  return trie;
}

}  // namespace hone::infer::grammar
