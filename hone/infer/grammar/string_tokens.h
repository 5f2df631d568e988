// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hone/infer/grammar/character.h"
#include "hone/infer/grammar/token_mask.h"
#include "hone/infer/grammar/token_trie.h"

namespace hone::infer::grammar {

// The tokens that can come within a JSON string, by the state of reading a character
// (grammar/character.h) before them. The points of a token are the characters that it begins, and
// the one that it finds begun. Immutable.
class StringTokens {
 public:
  using NextState = std::uint8_t (*)(std::uint8_t state, std::uint8_t byte);

  // A token that ends the string: `head` bytes of it, the quote, then a tail.
  struct Exit {
    text::TokenId id = 0;
    std::uint32_t tail = 0, points = 0, head = 0;
  };

  StringTokens() = default;
  // Takes those of `tokens` whose ids are listed, none of which is empty.
  StringTokens(const std::vector<std::string>& tokens, const std::vector<text::TokenId>& ids,
               NextState next);

  // Allows the tokens of at most `points` that do not end the string.
  void allow_inside(std::uint8_t state, std::uint32_t points, TokenMask& mask) const;
  // The tokens that end the string, without those of others().
  const std::vector<Exit>& exits(std::uint8_t state) const { return states_[state].exits; }
  // What follows the quotes of exits. Tail 0 is empty and not in the trie.
  const TokenTrie& tails() const { return tails_; }
  std::size_t tail_count() const { return tails_.ids.size() + 1; }
  // The tokens that end the string and have two or more quotes after that.
  const TokenTrie& others() const { return others_; }

 private:
  class Builder;

  struct State {
    std::vector<text::TokenId> inside{};  // by their points
    std::vector<std::uint32_t> ends{};    // inside[0] … inside[ends[p] - 1] have at most p points
    std::vector<Exit> exits{};
  };

  // Most tokens can come at the start of a character: masks are faster there.
  static constexpr std::uint32_t kMaskedPoints = 32;

  std::array<State, kCharacterStates> states_;
  std::vector<TokenMask> start_masks_;  // by points
  TokenTrie tails_, others_;
};

}  // namespace hone::infer::grammar
