// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hone/core/index.h"
#include "hone/infer/grammar/string_tokens.h"
#include "hone/infer/grammar/token_mask.h"
#include "hone/infer/grammar/token_trie.h"
#include "hone/text/tokenizer.h"

namespace hone::infer::grammar {

// The tokens of a model by their bytes, prepared for masks. Immutable.
class TokenVocabulary {
 public:
  // Longer tokens are never allowed.
  static constexpr std::size_t kMaxTokenBytes = 256;

  // `tokens` are the bytes by id; an empty string is never allowed. Stop tokens are allowed where
  // the text may end, whatever their bytes are.
  TokenVocabulary(std::vector<std::string> tokens, std::span<const text::TokenId> stop_ids);

  Index size() const { return static_cast<Index>(tokens_.size()); }
  const std::string& bytes(text::TokenId id) const { return tokens_[static_cast<std::size_t>(id)]; }
  bool is_stop(text::TokenId id) const;
  std::span<const text::TokenId> stop_ids() const { return stop_ids_; }
  std::uint32_t longest() const { return longest_; }  // in bytes

  const TokenTrie& all() const { return all_; }
  // Tokens inside strings that are values, and inside names that the schema does not list.
  const StringTokens& in_text() const { return in_text_; }
  const StringTokens& in_name() const { return in_name_; }

 private:
  std::vector<std::string> tokens_;
  std::vector<text::TokenId> stop_ids_;
  std::uint32_t longest_ = 0;
  TokenTrie all_;
  StringTokens in_text_, in_name_;
};

// The tokens of a tokenizer as they are written in the middle of a text, for logits of `size`
// tokens. Control tokens are never allowed, except `stop_ids`.
TokenVocabulary make_token_vocabulary(const text::Tokenizer& tokenizer, Index size,
                                      std::span<const text::TokenId> stop_ids);

}  // namespace hone::infer::grammar
