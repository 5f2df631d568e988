// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_vocabulary.h"

#include <algorithm>

#include "hone/infer/grammar/character.h"

namespace hone::infer::grammar {

using text::TokenId;

TokenVocabulary::TokenVocabulary(std::vector<std::string> tokens, std::span<const TokenId> stop_ids)
    : tokens_(std::move(tokens)), stop_ids_(stop_ids.begin(), stop_ids.end()) {
  std::erase_if(stop_ids_, [this](TokenId id) { return id < 0 || id >= size(); });
  std::vector<TokenId> usable;
  for (TokenId id = 0; id < size(); ++id) {
    const std::size_t length = bytes(id).size();
    if (length == 0 || length > kMaxTokenBytes || is_stop(id)) continue;
    longest_ = std::max(longest_, static_cast<std::uint32_t>(length));
    usable.push_back(id);
  }
  in_text_ = StringTokens(tokens_, usable, next_in_character);
  in_name_ = StringTokens(tokens_, usable, next_in_plain_character);
  all_ = make_token_trie(tokens_, std::move(usable));
}

bool TokenVocabulary::is_stop(TokenId id) const {
  return std::ranges::find(stop_ids_, id) != stop_ids_.end();
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
