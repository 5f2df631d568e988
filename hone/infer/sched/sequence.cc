// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sched/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/norm/log_sum_exp.h"

namespace hone::infer {

Sequence::Sequence(QueuedRequest request, const text::Tokenizer* tokenizer,
                   std::vector<TokenId> stop_ids, Index context,
                   std::shared_ptr<const grammar::TokenVocabulary> vocabulary)
    : queued_(std::move(request)),
      tokenizer_(tokenizer),
      stop_ids_(std::move(stop_ids)),
      context_(context),
      prompt_size_(static_cast<Index>(queued_.request.tokens.size())),
      tokens_(queued_.request.tokens),
      sampler_(queued_.request.sampling, tokens_),
      stops_(queued_.request.stop) {
  const std::vector<TokenId>& further = queued_.request.stop_ids;
  stop_ids_.insert(stop_ids_.end(), further.begin(), further.end());
  ending_ids_ = queued_.request.ignore_eos ? further : stop_ids_;
  std::ranges::sort(ending_ids_);
  if (queued_.grammar != nullptr) constraint_.emplace(queued_.grammar, std::move(vocabulary));
  visible_ids_ = queued_.request.visible_ids;
  std::ranges::sort(visible_ids_);
}

// Whether the text may not end before this position. A grammar says itself where it may.
bool Sequence::must_pass(Index position) const {
  return !constraint_ && position - prompt_size_ < queued_.request.min_tokens;
}

// Stop tokens are masked until the output has min_tokens.
std::span<const TokenId> Sequence::masked_at(Index position) const {
  return must_pass(position) ? std::span<const TokenId>(stop_ids_) : std::span<const TokenId>();
}

TokenId Sequence::choose(std::span<float> logits, const DrawnDraft* draft) {
  const auto position = static_cast<Index>(tokens_.size());
  const std::span<const TokenId> masked = masked_at(position);
  if (draft == nullptr) return sampler_.choose(logits, position, masked, allowed());
  std::vector<double> distribution(logits.size());
  sampler_.write_distribution(logits, masked, distribution, allowed());
  const TokenId id = verify_draft(distribution, draft->distribution, draft->id, 0,
                                  PositionUniforms(queued_.request.sampling, position));
  sampler_.history().add_output(id);
  return id;
}

std::optional<TokenId> Sequence::draft(std::span<float> logits, std::span<double> distribution) {
  const bool is_over = constraint_ && constraint_->is_complete();
  if (is_over || (!drafts_.empty() && ends_with(drafts_.back()))) return std::nullopt;
  if (constraint_ && drafts_.empty()) before_drafts_ = constraint_->state();
  try {
    drafts_.push_back(draw(logits, distribution));
  } catch (const Error& error) {
    if (error.category() == ErrorCategory::Internal) throw;
    return std::nullopt;  // drafts may lead where no token can follow
  }
  return drafts_.back();
}

TokenId Sequence::draw(std::span<float> logits, std::span<double> distribution) {
  const auto count = static_cast<Index>(drafts_.size());
  const auto first = static_cast<Index>(tokens_.size());
  const std::span<const TokenId> masked = masked_at(first + count);
  TokenId id = 0;
  if (distribution.empty()) {
    id = sampler_.choose(logits, first + count, masked, allowed());
  } else {
    sampler_.write_distribution(logits, masked, distribution, allowed());
    const PositionUniforms uniforms(queued_.request.sampling, first);
    id = draw_from_distribution(distribution, uniforms(count, VerifyDraw::Draft));
    sampler_.history().add_output(id);
  }
  if (constraint_) constraint_->accept(id);
  return id;
}

void Sequence::drop_drafts() {
  sampler_.history().truncate_output(static_cast<Index>(tokens_.size()) - prompt_size_);
  drafts_.clear();
  if (before_drafts_) constraint_->restore(*std::exchange(before_drafts_, std::nullopt));
}

Event Sequence::accept(std::span<float> logits, const Clock& clock, const DrawnDraft* draft) {
  const auto vocab = static_cast<Index>(logits.size());
  HONE_TRACE_ZONE("sample", {"vocab", vocab});
  const Request& request = queued_.request;
  Event event{.request = queued_.id};
  double normalizer = 0;
  std::vector<float> raw;
  if (request.logprobs > 0) {
    require_finite(logits);
    normalizer = kernels::log_sum_exp(logits.data(), vocab);
    event.top = top_logprobs(logits, request.logprobs, normalizer);
    raw.assign(logits.begin(), logits.end());
  }
  const auto position = static_cast<Index>(tokens_.size());
  const TokenId id = choose(logits, draft);
  if (constraint_) constraint_->accept(id);
  if (request.logprobs > 0) event.logprob = raw[static_cast<std::size_t>(id)] - normalizer;
  const std::int64_t now_ns = clock.now_ns();
  if (!first_token_ns_) first_token_ns_ = now_ns;
  event.token = id;
  if (!ends_with(id)) {
    const std::string text = text_of(id);
    event.text = utf8_.push(must_pass(position + 1) ? text : stops_.push(text));
  }
  event.cause = cause_of_stop(id);
  tokens_.push_back(id);
  const Index generated = position + 1 - prompt_size_;
  if (event.cause) {
    close(event, FinishReason::Stop, now_ns);
  } else if (generated >= request.max_tokens) {
    close(event, FinishReason::Length, now_ns);
  } else if (position + 1 >= context_) {
    close(event, FinishReason::Context, now_ns);
  }
  return event;
}

// Why the text ends with this token, which the matchers have seen; nullopt if it goes on.
std::optional<StopCause> Sequence::cause_of_stop(TokenId id) const {
  if (ends_with(id)) return StopCause{.kind = StopCause::Kind::Token, .token = id};
  if (stops_.matched()) {
    return StopCause{.kind = StopCause::Kind::String,
                     .string = static_cast<Index>(stops_.matched_string())};
  }
  if (constraint_ && constraint_->is_complete()) return StopCause{.kind = StopCause::Kind::Schema};
  return std::nullopt;
}

Event Sequence::finish(FinishReason reason, std::optional<StopCause> cause, std::int64_t now_ns) {
  Event event{.request = queued_.id, .cause = cause};
  close(event, reason, now_ns);
  return event;
}

void Sequence::close(Event& event, FinishReason reason, std::int64_t now_ns) {
  event.text += utf8_.push(stops_.finish());
  event.text += utf8_.finish();
  event.finished = reason;
  event.timings = timings(now_ns);
}

std::optional<TimeNs> Sequence::deadline() const {
  const double timeout = queued_.request.timeout_s;
  if (timeout == 0) return std::nullopt;
  return queued_.submitted_ns + std::llround(timeout * 1e9);
}

bool Sequence::ends_with(TokenId id) const { return std::ranges::binary_search(ending_ids_, id); }

// Control tokens, and rows of the embedding that have no piece, add no text.
bool Sequence::is_silent(TokenId id) const {
  if (id >= tokenizer_->vocab_size()) return true;
  return tokenizer_->is_control(id) && !std::ranges::binary_search(visible_ids_, id);
}

// Whether nothing has been written, so that the next token begins the text.
bool Sequence::opens_text() const {
  return std::ranges::all_of(tokens_, [this](TokenId id) { return is_silent(id); });
}

std::string Sequence::text_of(TokenId id) {
  if (tokenizer_ == nullptr || is_silent(id)) return {};
  if (tokenizer_->is_control(id)) return tokenizer_->piece(id);
  const TokenId ids[] = {id};
  return opens_text() ? tokenizer_->decode(ids) : tokenizer_->piece_bytes(id);
}

Timings Sequence::timings(std::int64_t now_ns) const {
  const std::int64_t started = started_ns_.value_or(now_ns);
  const std::int64_t first = first_token_ns_.value_or(now_ns);
  Timings result;
  result.prompt_tokens = prompt_size_;
  result.cached_tokens = cached_;
  result.generated_tokens = static_cast<Index>(tokens_.size()) - prompt_size_;
  result.queue_s = seconds_between(queued_.submitted_ns, started);
  result.prompt_s = seconds_between(started, first);
  result.decode_s = seconds_between(first, now_ns);
  result.ttft_s = result.queue_s + result.prompt_s;
  return result;
}

}  // namespace hone::infer
