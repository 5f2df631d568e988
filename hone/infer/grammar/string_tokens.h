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

// The tokens that can occur inside a JSON string, by the state of reading a character
// (grammar/character.h) before them. The points of a token are the number of characters that it
// begins, plus one if it continues a character. Immutable.
class StringTokens {
 public:
  using NextState = std::uint8_t (*)(std::uint8_t state, std::uint8_t byte);

  // A token that ends the string: `head` bytes of it, the quote, then a tail.
  struct Exit {
    text::TokenId id = 0;
    std::uint32_t tail = 0, points = 0, head = 0;
  };

  StringTokens() = default;
  // Takes the `tokens` whose ids are listed. None of these may be empty.
  StringTokens(const std::vector<std::string>& tokens, const std::vector<text::TokenId>& ids,
               NextState next);

  // Allows the tokens of at most `points` points that do not end the string.
  void allow_inside(std::uint8_t state, std::uint32_t points, TokenMask& mask) const;
  // The tokens that end the string, except those of others().
  const std::vector<Exit>& exits(std::uint8_t state) const { return states_[state].exits; }
  // The text after the quotes of exits. Tail 0 is empty and not in the trie.
  const TokenTrie& tails() const { return tails_; }
  std::size_t tail_count() const { return tails_.ids.size() + 1; }
  // The tokens that end the string and have two or more quotes after that.
  const TokenTrie& others() const { return others_; }

 private:
  class Builder;

  struct State {
    std::vector<text::TokenId> inside{};  // ordered by points
    std::vector<std::uint32_t> ends{};    // inside[0] … inside[ends[p] - 1] have at most p points
    std::vector<Exit> exits{};
  };

  // At the start of a character most tokens are allowed, and masks are faster.
  static constexpr std::uint32_t kMaskedPoints = 32;

  std::array<State, kCharacterStates> states_;
  std::vector<TokenMask> start_masks_;  // by points
  TokenTrie tails_, others_;
};

}  // namespace hone::infer::grammar
