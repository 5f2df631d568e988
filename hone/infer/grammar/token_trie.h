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
    std::uint16_t depth = 0;            // 0 for children of the root
    std::uint32_t skip = 0;             // the next node that is not a descendant
    std::uint32_t first = 0, last = 0;  // the strings of the node are ids[first] … ids[last - 1]
  };
  std::vector<Node> nodes{};
  std::vector<std::int32_t> ids{};  // indices of the strings
};

// Makes the trie of the `strings` whose indices are `ids`. None of these may be empty.
TokenTrie make_token_trie(const std::vector<std::string>& strings, std::vector<std::int32_t> ids);

}  // namespace hone::infer::grammar
