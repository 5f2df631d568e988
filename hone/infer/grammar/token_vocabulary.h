// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::infer::grammar {

// A set of token ids.
class TokenMask {
 public:
  explicit TokenMask(Index tokens) : words_(static_cast<std::size_t>((tokens + 63) / 64)) {}
  void allow(text::TokenId id) { word(id) |= std::uint64_t{1} << (id % 64); }
  void allow_all(const TokenMask& other);
  bool allows(text::TokenId id) const {
    return (words_[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
  }
  Index count() const;
  bool empty() const { return count() == 0; }
  // Sets the logits of all other tokens to -infinity.
  void apply(std::span<float> logits) const;

 private:
  std::uint64_t& word(text::TokenId id) { return words_[static_cast<std::size_t>(id) / 64]; }
  std::vector<std::uint64_t> words_;
};

// Byte strings in the order of a trie: a node, then its descendants.
struct TokenTrie {
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;            // of the root's children: 0
    std::uint32_t skip = 0;             // the next node that is no descendant
    std::uint32_t first = 0, last = 0;  // the tokens of the node are ids[first] … ids[last - 1]
  };
  std::vector<Node> nodes{};
  std::vector<text::TokenId> ids{};
};

// The tokens of a model by their bytes, prepared for masks. Immutable.
class TokenVocabulary {
 public:
  // Longer tokens are never allowed.
  static constexpr std::size_t kMaxTokenBytes = 256;
  // Tokens of plain text with more characters are looked up one by one.
  static constexpr std::uint32_t kMaxPlainPoints = 32;

  // `tokens` are the bytes by id; an empty string is never allowed. Stop tokens are allowed where
  // the text may end, whatever their bytes are.
  TokenVocabulary(std::vector<std::string> tokens, std::span<const text::TokenId> stop_ids);

  Index size() const { return static_cast<Index>(tokens_.size()); }
  const std::string& bytes(text::TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  bool is_stop(text::TokenId id) const;
  std::span<const text::TokenId> stop_ids() const { return stop_ids_; }
  std::uint32_t longest() const { return longest_; }  // in bytes

  const TokenTrie& all() const { return all_; }
  // Tokens that are no plain text.
  const TokenTrie& special() const { return special_; }
  // Plain text of at most `points` characters: complete UTF-8 without ", \ and control characters.
  const TokenMask& plain(std::uint32_t points) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<text::TokenId> stop_ids_;
  TokenTrie all_, special_;
  std::vector<TokenMask> plain_;
  std::uint32_t longest_ = 0;
};

// The tokens of a tokenizer as they are written in the middle of a text, for logits of `size`
// tokens. Control tokens are never allowed, except `stop_ids`.
TokenVocabulary make_token_vocabulary(const text::Tokenizer& tokenizer, Index size,
                                      std::span<const text::TokenId> stop_ids);

}  // namespace hone::infer::grammar
