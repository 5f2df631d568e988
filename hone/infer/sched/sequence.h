// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/core/clock.h"
#include "hone/infer/sample/sampler.h"
#include "hone/infer/sample/stop_matcher.h"
#include "hone/infer/sched/request_queue.h"

namespace hone::infer {

// One running request: which tokens are in the cache, which comes next, what text is certain. Knows
// neither model nor cache; the engine runs the tokens it names and hands back logits.
class Sequence {
 public:
  // `tokenizer` may be null: then events carry no text. `stop_ids` sorted.
  Sequence(QueuedRequest request, const text::Tokenizer* tokenizer, std::vector<TokenId> stop_ids,
           Index context, std::int64_t started_ns);

  RequestId id() const { return queued_.id; }
  const std::shared_ptr<EventSink>& sink() const { return queued_.sink; }
  const std::atomic<bool>& cancelled() const { return *queued_.cancelled; }

  // Tokens that are not in the cache yet, at most `limit`: the rest of the prompt, or the last
  // token.
  std::span<const TokenId> pending(Index limit) const;
  // The first `count` pending tokens are in the cache now.
  void advance(Index count) { cached_ += count; }
  bool has_pending_prompt() const { return cached_ < prompt_size_; }

  // Samples from the logits of the last token and takes the result in. The event says what became
  // certain and, when this was the last token, why. Overwrites logits.
  // Error{Internal} when the logits are not finite.
  Event accept(std::span<float> logits, const Clock& clock);
  // Ends the sequence now: the remaining text and the reason.
  Event finish(FinishReason reason, std::int64_t now_ns);

 private:
  bool ends_with(TokenId id) const;
  bool is_silent(TokenId id) const;
  bool opens_text() const;
  std::string text_of(TokenId id);
  void close(Event& event, FinishReason reason, std::int64_t now_ns);
  Timings timings(std::int64_t now_ns) const;

  QueuedRequest queued_;
  const text::Tokenizer* tokenizer_;
  std::vector<TokenId> stop_ids_;
  Index context_, prompt_size_, cached_ = 0;
  std::vector<TokenId> tokens_;  // prompt, then output
  Sampler sampler_;
  StopMatcher stops_;
  text::Utf8Stream utf8_;
  std::int64_t started_ns_, first_token_ns_ = 0;
};

}  // namespace hone::infer
