// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hone::infer::grammar {

// A trie of byte strings. Node 0 is the root; the children of a node are consecutive.
class ByteTrie {
 public:
  ByteTrie() = default;
  // `strings` must be sorted and distinct.
  explicit ByteTrie(const std::vector<std::string>& strings);

  std::optional<std::uint32_t> child(std::uint32_t node, std::uint8_t byte) const;
  bool has_children(std::uint32_t node) const { return nodes_[node].child_count > 0; }
  // Whether a string ends here. If so, it is the first one of the range below.
  bool ends(std::uint32_t node) const { return nodes_[node].ends; }
  // The strings [begin, end) of the sorted list have the node's prefix.
  std::uint32_t begin(std::uint32_t node) const { return nodes_[node].begin; }
  std::uint32_t end(std::uint32_t node) const { return nodes_[node].end; }
  bool empty() const { return nodes_.empty(); }
  std::size_t memory_bytes() const { return nodes_.size() * sizeof(Node); }

 private:
  struct Node {
    std::uint32_t begin = 0, end = 0, first_child = 0;
    std::uint16_t child_count = 0;
    std::uint8_t byte = 0;  // the byte that leads to this node
    bool ends = false;
  };
  std::vector<Node> nodes_;
};

}  // namespace hone::infer::grammar
