// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::infer {

// Drafts from the text itself (prompt lookup; Saxena, "Prompt Lookup Decoding", 2023): finds the
// latest earlier place where the last 4, 3 or 2 tokens occurred, longest first, and proposes what
// followed. Adding, removing and looking up a token takes constant expected time.
class NgramIndex {
 public:
  explicit NgramIndex(std::span<const text::TokenId> tokens = {}) { append(tokens); }

  void push(text::TokenId id);
  void append(std::span<const text::TokenId> tokens);
  // Keeps the first `size` tokens; the index is then as if the others had never been added. Throws
  // Error{InvalidArgument} if there are fewer.
  void truncate(Index size);
  Index size() const { return static_cast<Index>(tokens_.size()); }

  // Proposes `count` tokens, or none if the last two tokens did not occur together before. If the
  // place is less than `count` tokens from the end, the proposal repeats the tokens in between.
  std::vector<text::TokenId> propose(Index count) const;

 private:
  static constexpr Index kShortest = 2, kLongest = 4, kNone = -1;
  using Places = std::array<Index, kLongest - kShortest + 1>;

  std::uint64_t hash_before(Index end, Index length) const;
  bool occurs_before(Index end, Index length) const;

  std::vector<text::TokenId> tokens_;
  std::unordered_map<std::uint64_t, Index> latest_;  // hash of an n-gram: the place after it
  std::vector<Places> replaced_;                     // per token, earlier latest_ of its n-grams
};

}  // namespace hone::infer
