// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_vocabulary.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "hone/infer/grammar/character.h"

namespace hone::infer::grammar {
namespace {

using text::TokenId;

TokenTrie make_token_trie(const std::vector<std::string>& tokens, std::vector<TokenId> ids) {
  std::ranges::sort(ids, {}, [&](TokenId id) -> const std::string& {
    return tokens[static_cast<std::size_t>(id)];
  });
  TokenTrie trie;
  std::vector<std::uint32_t> open;  // the nodes that lead to the last token
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      trie.nodes[open.back()].skip = static_cast<std::uint32_t>(trie.nodes.size());
    }
  };
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string& bytes = tokens[static_cast<std::size_t>(ids[i])];
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

// The number of characters, if the bytes are plain text of at most kMaxPlainPoints.
std::optional<std::uint32_t> plain_points(const std::string& bytes) {
  std::uint8_t state = kCharacterStart;
  std::uint32_t points = 0;
  for (const char c : bytes) {
    if (c == '\\') return std::nullopt;
    state = next_in_character(state, static_cast<std::uint8_t>(c));
    if (state == kNoCharacter) return std::nullopt;
    points += state == kCharacterStart;
  }
  if (state != kCharacterStart || points > TokenVocabulary::kMaxPlainPoints) return std::nullopt;
  return points;
}

}  // namespace

void TokenMask::allow_all(const TokenMask& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

Index TokenMask::count() const {
  Index count = 0;
  for (const std::uint64_t word : words_) count += std::popcount(word);
  return count;
}

void TokenMask::apply(std::span<float> logits) const {
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::uint64_t word = words_[begin / 64];
    if (word == ~std::uint64_t{0}) continue;
    const std::size_t end = std::min(logits.size(), begin + 64);
    for (std::size_t i = begin; i < end; ++i) {
      if ((word >> (i - begin) & 1) == 0) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

TokenVocabulary::TokenVocabulary(std::vector<std::string> tokens, std::span<const TokenId> stop_ids)
    : tokens_(std::move(tokens)), stop_ids_(stop_ids.begin(), stop_ids.end()) {
  std::erase_if(stop_ids_, [this](TokenId id) { return id < 0 || id >= size(); });
  plain_.assign(kMaxPlainPoints + 1, TokenMask(size()));
  std::vector<TokenId> all, special;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string& token = bytes(id);
    if (token.empty() || token.size() > kMaxTokenBytes || is_stop(id)) continue;
    longest_ = std::max(longest_, static_cast<std::uint32_t>(token.size()));
    all.push_back(id);
    const std::optional<std::uint32_t> points = plain_points(token);
    if (!points) special.push_back(id);
    for (std::uint32_t i = points.value_or(kMaxPlainPoints + 1); i <= kMaxPlainPoints; ++i) {
      plain_[i].allow(id);
    }
  }
  all_ = make_token_trie(tokens_, std::move(all));
  special_ = make_token_trie(tokens_, std::move(special));
}

bool TokenVocabulary::is_stop(TokenId id) const {
  return std::ranges::find(stop_ids_, id) != stop_ids_.end();
}

const TokenMask& TokenVocabulary::plain(std::uint32_t points) const {
  return plain_[std::min(points, kMaxPlainPoints)];
}

TokenVocabulary make_token_vocabulary(const text::Tokenizer& tokenizer, Index size,
                                      std::span<const TokenId> stop_ids) {
  std::vector<std::string> tokens(static_cast<std::size_t>(size));
  for (TokenId id = 0; id < std::min(size, tokenizer.vocab_size()); ++id) {
    if (!tokenizer.is_control(id)) {
      tokens[static_cast<std::size_t>(id)] = tokenizer.piece_bytes(id);
    }
  }
  return TokenVocabulary(std::move(tokens), stop_ids);
}

}  // namespace hone::infer::grammar
