// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/batch/request_id.h"
#include "hone/core/error.h"
#include "hone/core/index.h"
#include "hone/infer/speculation.h"
#include "hone/text/tokenizer.h"

namespace hone::infer {

namespace grammar {
class JsonSchema;
}

using text::TokenId;

struct LogitBias {
  TokenId id = 0;
  float bias = 0;
};

// How the next token is sampled from logits, in this order: logit bias, repetition, presence and
// frequency penalties, temperature, top-k, top-p, min-p, draw. The defaults sample from the model's
// own distribution.
struct SamplingParams {
  std::vector<LogitBias> logit_bias{};  // added to the logits
  // For tokens of the prompt and the output: negative logits are multiplied by it, positive ones
  // divided.
  float repetition_penalty = 1;
  float presence_penalty = 0;   // subtracted once if the token is in the output
  float frequency_penalty = 0;  // subtracted for each occurrence in the output
  float temperature = 1;        // 0 selects the largest logit, the lowest id on ties
  Index top_k = 0;              // 0 keeps all
  float top_p = 1;  // keeps the smallest set of most likely tokens with this probability
  float min_p = 0;  // keeps tokens with at least this fraction of the highest probability
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;  // distinguishes several answers to one prompt
};

// Throws Error{InvalidArgument} that names the parameter unless temperature is 0…5, top_p (0, 1],
// min_p [0, 1], top_k at least 0, presence and frequency -2…2, repetition 0.1…10, and there are at
// most 1024 biases of -100…100 for ids below vocab_size.
void validate(const SamplingParams& sampling, Index vocab_size);

enum class Priority { High, Normal, Low };

// Why a request was not answered.
enum class Refusal {
  QueueFull,
  TenantFull,      // the tenant has EngineOptions::max_tenant_requests requests
  PromptTooLong,   // the prompt and one more token do not fit into the context
  DeadlinePassed,  // before the first token
};
// "queue_full", "tenant_full", "prompt_too_long", "deadline_passed"
std::string_view name_of(Refusal refusal);

// Says why a request was refused.
class RefusedError : public Error {
 public:
  RefusedError(Refusal refusal, ErrorCategory category, const std::string& message)
      : Error(category, message), refusal_(refusal) {}
  Refusal refusal() const noexcept { return refusal_; }

 private:
  Refusal refusal_;
};

struct Request {
  std::vector<TokenId> tokens{};  // the prompt; at least one
  SamplingParams sampling{};
  // At most 16 strings of 1…256 bytes; excluded from the text. One that spells a control token also
  // ends the text at that token.
  std::vector<std::string> stop{};
  std::vector<TokenId> stop_ids{};  // at most 64 tokens that end the text besides the model's own
  bool ignore_eos = false;          // whether stop tokens do not end the text
  Index max_tokens = 16;            // maximum tokens of the output
  Index min_tokens = 0;             // stop tokens are masked until then
  Index logprobs = 0;               // number of alternatives reported with each token, 0…20
  // The text of a JSON schema (docs/structured-output.md); empty for none. The output then is JSON
  // that satisfies it, or the beginning of such a text if it ends by length, context or `stop`.
  // Excludes `ignore_eos`, `grammar` and `min_tokens` above 0, and needs a tokenizer.
  std::string json_schema{};
  // Whether keywords of the schema that cannot be enforced are ignored instead of refused.
  bool ignores_unsupported_schema = false;
  // A format that the output has (hone/infer/output_format.h), under the same conditions, but that
  // `min_tokens` has no effect.
  std::shared_ptr<const grammar::JsonSchema> grammar{};
  // Control tokens that are spelled in the text. The others add nothing to it.
  std::vector<TokenId> visible_ids{};
  SpecParams spec{};  // for engines with drafts
  // Classes of higher priority run first. A request rises by one class for every 10 s that it
  // waits, so that none waits forever.
  Priority priority = Priority::Normal;
  // Deadline in seconds after submit(), up to 1e9; 0 for none. A request that has no token by then
  // fails with Refusal::DeadlinePassed. A request that has one is cancelled and keeps its text.
  double timeout_s = 0;
  // The tenant. Only requests with equal salts share prefixes in the KV cache, so that no tenant
  // can learn from timings what another one asked.
  std::uint64_t salt = 0;
};

// Throws Error{InvalidArgument} that names `where` unless all ids are below `vocab_size`.
void check_ids(std::span<const TokenId> tokens, Index vocab_size, std::string_view where);

// Limits that a model sets for its requests.
struct RequestLimits {
  Index vocab_size = 0;
  Index context = 0;            // maximum tokens of a text
  bool is_cache_short = false;  // whether the KV cache, not the model, limits the context
  bool has_tokenizer = false;
};
// Throws Error{InvalidArgument} that names what is invalid: RefusedError for a prompt that is too
// long. Does not read the schema.
void validate(const Request& request, const RequestLimits& limits);

// Reads a schema as the request's would be, and returns the JSON pointers of the ignored keywords.
// Keywords are ignored only with Request::ignores_unsupported_schema. Throws what
// grammar::JsonSchema::compile() throws.
std::vector<std::string> check_schema(const Request& request);

enum class FinishReason {
  Stop,       // a stop token or string, or the end that the schema sets
  Length,     // max_tokens
  Context,    // the context, or the KV cache, is full
  Cancelled,  // also by its deadline
  Failed,
};
// "stop", "length", "context", "cancelled", "failed"
std::string_view name_of(FinishReason reason);

// What ended a text by itself, or cancelled it.
struct StopCause {
  enum class Kind { Token, String, Schema, Deadline, Client, Stalled } kind = Kind::Token;
  TokenId token = 0;  // Token: the last one
  Index string = 0;   // String: its index in Request::stop
};

// The natural logarithm of the model's own probability (before bias, penalties and temperature).
struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0;
};

// Wall time of the phases of one request, in seconds.
struct Timings {
  Index prompt_tokens = 0, generated_tokens = 0;
  Index cached_tokens = 0;  // of the prompt, which the KV cache had
  double queue_s = 0;       // from submit() to the first prefill step
  double prompt_s = 0;      // prefill, including the first token
  double decode_s = 0;      // all later tokens
  double ttft_s = 0;        // queue_s + prompt_s
  double prompt_per_s() const {
    return prompt_s > 0 ? static_cast<double>(prompt_tokens) / prompt_s : 0;
  }
  // The rate of the tokens after the first.
  double decode_per_s() const {
    return decode_s > 0 ? static_cast<double>(generated_tokens - 1) / decode_s : 0;
  }
};

// An event of a request: one per token, and the last event has `finished`.
struct Event {
  RequestId request = 0;
  std::optional<TokenId> token{};
  std::string text{};  // new complete UTF-8 text; may be empty
  double logprob = 0;
  std::vector<TokenLogprob> top{};  // the Request::logprobs most likely tokens, most likely first
  std::optional<FinishReason> finished{};
  std::optional<StopCause> cause{};         // with FinishReason::Stop and Cancelled
  Timings timings{};                        // with `finished`
  Index kv_bytes = 0, kv_blocks = 0;        // in use at the end; with `finished`
  std::shared_ptr<const SpecStats> spec{};  // with `finished`, if the engine has drafts
  std::string error{};                      // with FinishReason::Failed
  ErrorCategory error_category = ErrorCategory::Internal;
  std::optional<Refusal> refusal{};  // with FinishReason::Failed, if it was refused
};

// Receives the events of a request. Called on the engine thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // Returns false if the sink is full, and then leaves the event unchanged. The engine pauses and
  // offers the event again later.
  virtual bool try_push(Event&& event) noexcept = 0;
};

}  // namespace hone::infer
