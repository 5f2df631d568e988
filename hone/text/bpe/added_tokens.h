// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/text/vocabulary.h"

namespace hone::text {

// Finds added tokens in a text and obeys their flags: the leftmost first, the longest on ties.
// Immutable after the last add().
class AddedTokenMatcher {
 public:
  // `spelling` is the text to look for.
  void add(std::string_view spelling, const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // Whether a token may be found at bytes [begin, end) of the text.
  using Allows = FunctionRef<bool(const AddedToken& token, std::size_t begin, std::size_t end)>;

  // Calls plain(stretch) and found(id) in the order of the text. No stretch is empty.
  void split(std::string_view text, FunctionRef<void(std::string_view)> plain,
             FunctionRef<void(TokenId)> found) const;
  void split(std::string_view text, Allows allows, FunctionRef<void(std::string_view)> plain,
             FunctionRef<void(TokenId)> found) const;

  // The length and id of the longest token that starts `text`; length 0 if there is none. Ignores
  // flags.
  std::pair<std::size_t, TokenId> match_prefix(std::string_view text) const;

 private:
  struct Node {
    std::int32_t token = -1;  // index into tokens_
    std::vector<std::pair<std::uint8_t, std::int32_t>> children;
  };
  struct Match {
    std::size_t begin = 0, end = 0;
    std::int32_t token = -1;
  };
  Match find(std::string_view text, std::size_t from, Allows allows) const;
  std::int32_t child(std::int32_t node, std::uint8_t byte) const;
  Match longest_at(std::string_view text, std::size_t begin, Allows allows) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_{Node{}};
  std::array<bool, 256> starts_{};
};

}  // namespace hone::text
