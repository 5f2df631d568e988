// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_constraint.h"

#include <string>
#include <utility>

#include "hone/core/check.h"

namespace hone::infer::grammar {

using text::TokenId;

TokenConstraint::TokenConstraint(std::shared_ptr<const JsonSchema> schema,
                                 std::shared_ptr<const TokenVocabulary> vocabulary)
    : matcher_(std::move(schema)),
      vocabulary_(std::move(vocabulary)),
      state_(matcher_.start()),
      path_(TokenVocabulary::kMaxTokenBytes) {}

const TokenMask& TokenConstraint::allowed() {
  std::string key = matcher_.key(state_, vocabulary_->longest());
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    masks_.splice(masks_.begin(), masks_, found->second);
  } else {
    TokenMask mask = make_mask();
    if (mask.empty()) {
      fail_unsupported("JSON schema",
                       "The model's vocabulary has no token that continues the text"
                       " as the schema demands.");
    }
    if (masks_.size() >= kMaxMasks) {
      by_key_.erase(masks_.back().first);
      masks_.pop_back();
    }
    masks_.emplace_front(std::move(key), std::move(mask));
    by_key_.emplace(masks_.front().first, masks_.begin());
  }
  return masks_.front().second;
}

void TokenConstraint::accept(TokenId id) {
  const bool in_range = id >= 0 && id < vocabulary_->size();
  const bool has_text = in_range && !vocabulary_->is_stop(id) && !vocabulary_->bytes(id).empty();
  Matcher::State next = matcher_.advance_token(state_, id, has_text || vocabulary_->is_stop(id));
  if (next.is_dead() && in_range && vocabulary_->is_stop(id) && is_accepting()) return;
  if (next.is_dead() && has_text) {
    const std::string& bytes = vocabulary_->bytes(id);
    next = matcher_.advance(state_, bytes);
    if (next.is_dead()) next = advance_apart(bytes);
  }
  if (next.is_dead()) {
    fail(ErrorCategory::Internal, "JSON schema", "a token that the mask allows", concat(id));
  }
  state_ = std::move(next);
}

// All readings together may have become too many where those that make_mask() looks at had not.
Matcher::State TokenConstraint::advance_apart(const std::string& bytes) {
  const Matcher::Parts parts = matcher_.split(state_);
  Matcher::State next = matcher_.advance(parts.others, bytes);
  for (const Matcher::InString& reading : parts.strings) {
    if (!next.is_dead()) break;
    next = matcher_.advance(Matcher::state_of(reading.frame), bytes);
  }
  for (const Frame& reading : parts.free) {
    if (next.is_dead()) next = matcher_.advance(Matcher::state_of(reading), bytes);
  }
  return next;
}

TokenMask TokenConstraint::make_mask() {
  TokenMask mask(vocabulary_->size());
  const auto allow = [&](TokenId id) { mask.allow(id); };
  const Matcher::Parts parts = matcher_.split(state_);
  const Matcher::Mark mark = matcher_.mark();
  for (const Matcher::InString& reading : parts.strings) allow_in_string(reading, mask);
  for (const Frame& reading : parts.free) allow_free(reading, mask);
  if (!parts.others.is_dead()) walk(vocabulary_->all(), parts.others, allow);
  matcher_.cut(mark);
  for (const TokenId id : matcher_.next_tokens(state_)) {
    if (id < vocabulary_->size()) mask.allow(id);
  }
  if (is_accepting()) {
    for (const TokenId id : vocabulary_->stop_ids()) mask.allow(id);
  }
  return mask;
}

// The tokens that do not end the string are known, and of the others, those with the same text
// after the string are allowed or refused together.
void TokenConstraint::allow_in_string(const Matcher::InString& reading, TokenMask& mask) {
  const StringTokens& tokens = reading.is_name() ? vocabulary_->in_name() : vocabulary_->in_text();
  const std::uint8_t character = reading.frame.character;
  tokens.allow_inside(character, reading.room, mask);
  Matcher::State after;
  matcher_.end_string(reading.frame, after);
  tail_follows_.assign(tokens.tail_count(), 0);
  tail_follows_[0] = 1;
  walk(tokens.tails(), after,
       [&](std::int32_t tail) { tail_follows_[static_cast<std::size_t>(tail)] = 1; });
  for (const StringTokens::Exit& exit : tokens.exits(character)) {
    if (tail_follows_[exit.tail] == 0) continue;
    if (exit.points < reading.missing || exit.points > reading.room) continue;
    const std::string_view bytes = vocabulary_->bytes(exit.id);
    if (matcher_.may_end_after(reading.frame, bytes.substr(0, exit.head))) mask.allow(exit.id);
  }
  walk(tokens.others(), Matcher::state_of(reading.frame), [&](TokenId id) { mask.allow(id); });
}

// All tokens but those that end the free part and go on as no text may.
void TokenConstraint::allow_free(const Frame& reading, TokenMask& mask) {
  const std::string& end = matcher_.free_node(reading).text;
  const Matcher::State before = Matcher::state_of(reading);
  for (TokenId id = 0; id < vocabulary_->size(); ++id) {
    if (vocabulary_->is_stop(id)) continue;
    const std::string& bytes = vocabulary_->bytes(id);
    const bool may_end = !end.empty() && bytes.find(end.back()) != std::string::npos;
    if (!may_end || !matcher_.advance(before, bytes).is_dead()) mask.allow(id);
  }
}

template <class Visit>
void TokenConstraint::walk(const TokenTrie& trie, const Matcher::State& from, const Visit& visit) {
  for (std::size_t i = 0; i < trie.nodes.size();) {
    const TokenTrie::Node& node = trie.nodes[i];
    const Matcher::State& before = node.depth == 0 ? from : path_[node.depth - 1u];
    Matcher::State& after = path_[node.depth];
    matcher_.advance_byte(before, node.byte, after);
    if (after.is_dead()) {
      i = node.skip;
      continue;
    }
    for (std::uint32_t t = node.first; t < node.last; ++t) visit(trie.ids[t]);
    ++i;
  }
}

}  // namespace hone::infer::grammar
