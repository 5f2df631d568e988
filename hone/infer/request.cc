// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/request.h"

#include <cmath>

#include "hone/core/check.h"
#include "hone/infer/grammar/json_schema.h"

namespace hone::infer {
namespace {

void check_range(double value, double low, double high, std::string_view name) {
  if (value >= low && value <= high) return;  // false for NaN
  fail_argument(name, concat("a number in [", low, ", ", high, "]"), concat(value));
}

void check_stops(const Request& request, bool has_tokenizer) {
  HONE_CHECK(request.stop.size() <= 16, "stop", "at most 16 strings", request.stop.size());
  for (const std::string& stop : request.stop) {
    HONE_CHECK(!stop.empty() && stop.size() <= 256, "stop", "a string of 1 to 256 bytes",
               stop.size());
  }
  HONE_REQUIRE(request.stop.empty() || has_tokenizer, "stop",
               "Stop strings need a tokenizer, and this model has none.");
}

// What a request with a schema may not say.
void check_ends(const Request& request, bool has_tokenizer) {
  HONE_REQUIRE(has_tokenizer, "JSON schema",
               "A schema needs a tokenizer, and this model has none.");
  HONE_REQUIRE(!request.ignore_eos, "JSON schema",
               "The schema says where the text ends, so that stop tokens cannot be ignored.");
  HONE_REQUIRE(request.json_schema.empty() || request.min_tokens == 0, "JSON schema",
               "The schema says how long the text is, so that it has no minimum of tokens.");
  HONE_REQUIRE(request.json_schema.empty() || request.grammar == nullptr, "JSON schema",
               "A schema and a format exclude each other.");
}

}  // namespace

void validate(const SamplingParams& sampling, Index vocab_size) {
  check_range(sampling.temperature, 0, 5, "temperature");
  check_range(sampling.top_p, 0, 1, "top_p");
  HONE_CHECK(sampling.top_p > 0, "top_p", "a number above 0", sampling.top_p);
  check_range(sampling.min_p, 0, 1, "min_p");
  HONE_CHECK(sampling.top_k >= 0, "top_k", "a whole number of at least 0", sampling.top_k);
  check_range(sampling.presence_penalty, -2, 2, "presence_penalty");
  check_range(sampling.frequency_penalty, -2, 2, "frequency_penalty");
  check_range(sampling.repetition_penalty, 0.1, 10, "repetition_penalty");
  HONE_CHECK(sampling.logit_bias.size() <= 1024, "logit_bias", "at most 1024 entries",
             sampling.logit_bias.size());
  for (const LogitBias& entry : sampling.logit_bias) {
    HONE_CHECK(entry.id >= 0 && entry.id < vocab_size, "logit_bias",
               concat("a token id below ", vocab_size), entry.id);
    check_range(entry.bias, -100, 100, "logit_bias");
  }
}

void check_ids(std::span<const TokenId> tokens, Index vocab_size, std::string_view where) {
  for (const TokenId id : tokens) {
    HONE_CHECK(id >= 0 && id < vocab_size, where, concat("a token id below ", vocab_size), id);
  }
}

void validate(const Request& request, const RequestLimits& limits) {
  const auto length = static_cast<Index>(request.tokens.size());
  HONE_CHECK(length >= 1, "request", "a prompt of at least one token", length);
  if (length >= limits.context) {
    throw RefusedError(
        Refusal::PromptTooLong, ErrorCategory::InvalidArgument,
        concat("[request] expected a prompt below the ", limits.context, " tokens of the ",
               limits.is_cache_short ? "KV cache" : "context", ", got ", length));
  }
  check_ids(request.tokens, limits.vocab_size, "request");
  HONE_CHECK(request.max_tokens >= 1, "max_tokens", "at least 1", request.max_tokens);
  HONE_CHECK(request.min_tokens >= 0 && request.min_tokens <= request.max_tokens, "min_tokens",
             concat("0 to ", request.max_tokens), request.min_tokens);
  HONE_CHECK(request.logprobs >= 0 && request.logprobs <= 20, "logprobs", "0 to 20",
             request.logprobs);
  check_stops(request, limits.has_tokenizer);
  HONE_CHECK(request.stop_ids.size() <= 64, "stop_ids", "at most 64 tokens",
             request.stop_ids.size());
  check_ids(request.stop_ids, limits.vocab_size, "stop_ids");
  const Index depth = request.spec.depth.value_or(0);
  HONE_CHECK(depth >= 0 && depth <= kMaxDraftDepth, "drafts",
             concat("0 to ", kMaxDraftDepth, " in a round"), depth);
  const bool is_timeout = request.timeout_s >= 0 && request.timeout_s <= 1e9;  // false for NaN
  HONE_CHECK(is_timeout, "timeout", "0 to 1e9 seconds", request.timeout_s);
  check_ids(request.visible_ids, limits.vocab_size, "visible_ids");
  if (!request.json_schema.empty() || request.grammar != nullptr) {
    check_ends(request, limits.has_tokenizer);
  }
  validate(request.sampling, limits.vocab_size);
}

std::vector<std::string> check_schema(const Request& request) {
  std::vector<std::string> ignored;
  grammar::JsonSchema::compile(request.json_schema,
                               request.ignores_unsupported_schema ? &ignored : nullptr);
  return ignored;
}

std::string_view name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::QueueFull:
      return "queue_full";
    case Refusal::TenantFull:
      return "tenant_full";
    case Refusal::PromptTooLong:
      return "prompt_too_long";
    case Refusal::DeadlinePassed:
      break;
  }
  return "deadline_passed";
}

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::Stop:
      return "stop";
    case FinishReason::Length:
      return "length";
    case FinishReason::Context:
      return "context";
    case FinishReason::Cancelled:
      return "cancelled";
    case FinishReason::Failed:
      break;
  }
  return "failed";
}

}  // namespace hone::infer
