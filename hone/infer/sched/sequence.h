// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hone/core/machine/clock.h"
#include "hone/infer/grammar/token_constraint.h"
#include "hone/infer/sample/sampler.h"
#include "hone/infer/sample/stop_matcher.h"
#include "hone/infer/sched/request_queue.h"
#include "hone/infer/spec/verify.h"

namespace hone::infer {

// A draft drawn from a distribution, for SpecRule::Exact.
struct DrawnDraft {
  TokenId id = 0;
  std::span<const double> distribution{};  // [vocab]
};

// The text of one request: its tokens, and the part of their text that is final. It does not know
// the model or the cache. The engine passes the logits that follow the last token.
class Sequence {
 public:
  // If `tokenizer` is null, events have no text. `stop_ids` must be sorted. `vocabulary` is needed
  // if the request has a schema.
  Sequence(QueuedRequest request, const text::Tokenizer* tokenizer, std::vector<TokenId> stop_ids,
           Index context, std::shared_ptr<const grammar::TokenVocabulary> vocabulary = nullptr);

  RequestId id() const { return queued_.id; }
  const std::shared_ptr<EventSink>& sink() const { return queued_.sink; }
  const std::atomic<bool>& cancelled() const { return *queued_.cancelled; }

  const Request& request() const { return queued_.request; }
  std::span<const TokenId> tokens() const { return tokens_; }  // prompt, then output
  Index prompt_size() const { return prompt_size_; }
  // The deadline that its timeout sets, if any.
  std::optional<TimeNs> deadline() const;
  bool has_token() const { return first_token_ns_.has_value(); }
  bool has_started() const { return started_ns_.has_value(); }
  // Ends the time in the queue. Only the first call has an effect on it. `cached` tokens came from
  // the KV cache so far.
  void start(std::int64_t now_ns, Index cached = 0) {
    if (!started_ns_) started_ns_ = now_ns;
    cached_ = std::min(cached, prompt_size_);
  }

  // Samples from the logits of the last token and appends the result. The event has the new text
  // and, after the last token, the reason for ending. Overwrites logits. Throws Error{Internal} if
  // the logits are not finite, Error{Unsupported} if no token can continue the text as the schema
  // demands. With a draft, the token is the result of verify_draft(): the draft if it is accepted.
  Event accept(std::span<float> logits, const Clock& clock, const DrawnDraft* draft = nullptr);

  // Draws a draft of the token after the text and the earlier drafts, from the logits of a draft
  // model. Applies masks and penalties as accept() does. If `distribution` [vocab] is not empty,
  // writes the distribution there and draws from it. Otherwise, the draw shares the noise of
  // accept(). Returns nullopt if no token can come after the drafts, or if the text may not
  // continue after them. Overwrites logits. Throws what accept() throws for logits that are not
  // finite.
  std::optional<TokenId> draft(std::span<float> logits, std::span<double> distribution);
  // Takes back all drafts. Must be called before accept().
  void drop_drafts();
  // Ends the sequence. The event has the remaining text, the reason and the cause.
  Event finish(FinishReason reason, std::optional<StopCause> cause, std::int64_t now_ns);

 private:
  bool must_pass(Index position) const;
  std::span<const TokenId> masked_at(Index position) const;
  const grammar::TokenMask* allowed() { return constraint_ ? &constraint_->allowed() : nullptr; }
  TokenId choose(std::span<float> logits, const DrawnDraft* draft);
  TokenId draw(std::span<float> logits, std::span<double> distribution);
  bool ends_with(TokenId id) const;
  bool is_silent(TokenId id) const;
  bool opens_text() const;
  std::string text_of(TokenId id);
  void close(Event& event, FinishReason reason, std::int64_t now_ns);
  std::optional<StopCause> cause_of_stop(TokenId id) const;
  Timings timings(std::int64_t now_ns) const;

  QueuedRequest queued_;
  const text::Tokenizer* tokenizer_;
  std::vector<TokenId> stop_ids_;
  std::vector<TokenId> ending_ids_;   // those that end this text, sorted
  std::vector<TokenId> visible_ids_;  // control tokens that the text spells, sorted
  Index context_, prompt_size_;
  Index cached_ = 0;
  std::vector<TokenId> tokens_;  // prompt, then output
  Sampler sampler_;
  StopMatcher stops_;
  std::optional<grammar::TokenConstraint> constraint_;
  std::vector<TokenId> drafts_;
  std::optional<grammar::Matcher::State> before_drafts_;  // state of constraint_
  text::Utf8Stream utf8_;
  std::optional<std::int64_t> started_ns_, first_token_ns_;
};

}  // namespace hone::infer
