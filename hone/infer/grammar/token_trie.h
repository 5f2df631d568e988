// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hone::infer::grammar {

// Byte strings in the order of a trie: a node, then its descendants.
struct TokenTrie {
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;            // of the root's children: 0
    std::uint32_t skip = 0;             // the next node that is no descendant
    std::uint32_t first = 0, last = 0;  // the strings of the node are ids[first] … ids[last - 1]
  };
  std::vector<Node> nodes{};
  std::vector<std::int32_t> ids{};  // indices of the strings
};

// The trie of those `strings` whose indices are `ids`, none of which is empty.
TokenTrie make_token_trie(const std::vector<std::string>& strings, std::vector<std::int32_t> ids);

}  // namespace hone::infer::grammar
