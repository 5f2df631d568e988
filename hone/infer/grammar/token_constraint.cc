// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/grammar/token_constraint.h"

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
  if (in_range && vocabulary_->is_stop(id) && is_accepting()) return;
  Matcher::State next;
  if (in_range && !vocabulary_->is_stop(id) && !vocabulary_->bytes(id).empty()) {
    const std::string& bytes = vocabulary_->bytes(id);
    next = matcher_.advance(state_, bytes);
    // All readings together may have become too many where each half of make_mask() had not.
    const Matcher::PlainText parts = matcher_.split(state_);
    if (next.is_dead()) next = matcher_.advance(parts.inside, bytes);
    if (next.is_dead()) next = matcher_.advance(parts.others, bytes);
  }
  if (next.is_dead()) {
    fail(ErrorCategory::Internal, "JSON schema", "a token that the mask allows", concat(id));
  }
  state_ = std::move(next);
}

// Readings within a string take plain text without looking at each token.
TokenMask TokenConstraint::make_mask() {
  TokenMask mask(vocabulary_->size());
  const Matcher::PlainText parts = matcher_.split(state_);
  for (const std::uint32_t room : parts.room) mask.allow_all(vocabulary_->plain(room));
  const Matcher::Mark mark = matcher_.mark();
  if (!parts.inside.is_dead()) walk(vocabulary_->special(), parts.inside, mask);
  if (!parts.others.is_dead()) walk(vocabulary_->all(), parts.others, mask);
  matcher_.cut(mark);
  if (is_accepting()) {
    for (const TokenId id : vocabulary_->stop_ids()) mask.allow(id);
  }
  return mask;
}

void TokenConstraint::walk(const TokenTrie& trie, const Matcher::State& from, TokenMask& mask) {
  for (std::size_t i = 0; i < trie.nodes.size();) {
    const TokenTrie::Node& node = trie.nodes[i];
    const Matcher::State& before = node.depth == 0 ? from : path_[node.depth - 1u];
    Matcher::State& after = path_[node.depth];
    matcher_.advance_byte(before, node.byte, after);
    if (after.is_dead()) {
      i = node.skip;
      continue;
    }
    for (std::uint32_t t = node.first; t < node.last; ++t) mask.allow(trie.ids[t]);
    ++i;
  }
}

}  // namespace hone::infer::grammar
