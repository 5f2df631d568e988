// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "hone/infer/grammar/matcher.h"
#include "hone/infer/grammar/token_vocabulary.h"

namespace hone::infer::grammar {

// Restricts the output of one sequence to a JSON schema or a format: determines which tokens may
// come next. Caches the masks of the last kMaxMasks different states.
class TokenConstraint {
 public:
  static constexpr std::size_t kMaxMasks = 256;

  TokenConstraint(std::shared_ptr<const JsonSchema> schema,
                  std::shared_ptr<const TokenVocabulary> vocabulary);

  // The tokens that may come next. Stop tokens are included only if the text may end. Valid until
  // the next call. Throws Error{Unsupported} if there is none, which can happen only if the
  // vocabulary lacks some bytes.
  const TokenMask& allowed();
  // Appends a token, which must be in allowed(). Throws Error{Internal} for another one.
  void accept(text::TokenId id);

  bool is_accepting() const { return matcher_.is_accepting(state_); }
  // Whether only a stop token can follow.
  bool is_complete() const { return matcher_.is_complete(state_); }

  // For taking back output.
  const Matcher::State& state() const { return state_; }
  void restore(Matcher::State state) { state_ = std::move(state); }

 private:
  using Entry = std::pair<std::string, TokenMask>;

  TokenMask make_mask();
  void allow_in_string(const Matcher::InString& reading, TokenMask& mask);
  void allow_free(const Frame& reading, TokenMask& mask);
  template <class Visit>
  void walk(const TokenTrie& trie, const Matcher::State& from, const Visit& visit);
  Matcher::State advance_apart(const std::string& bytes);

  Matcher matcher_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  Matcher::State state_;
  std::vector<Matcher::State> path_;        // used by walk()
  std::vector<std::uint8_t> tail_follows_;  // used by allow_in_string()
  std::list<Entry> masks_;                  // most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

}  // namespace hone::infer::grammar
