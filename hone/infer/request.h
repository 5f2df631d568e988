// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/error.h"
#include "hone/core/index.h"
#include "hone/text/tokenizer.h"

namespace hone::infer {

using text::TokenId;
using RequestId = std::uint64_t;

struct LogitBias {
  TokenId id = 0;
  float bias = 0;
};

// How the next token is chosen from logits, in this order: logit bias, repetition, presence and
// frequency penalties, temperature, top-k, top-p, min-p, draw. Defaults leave the model's law
// alone.
struct SamplingParams {
  std::vector<LogitBias> logit_bias{};  // added to the logits
  // Over prompt and output: a negative logit is multiplied by it, a positive one divided.
  float repetition_penalty = 1;
  float presence_penalty = 0;   // subtracted once for a token of the output
  float frequency_penalty = 0;  // subtracted for each occurrence in the output
  float temperature = 1;        // 0: the largest logit, ties to the lowest id
  Index top_k = 0;              // 0: all
  float top_p = 1;              // smallest set of most likely tokens that reaches this mass
  float min_p = 0;              // at least this share of the most likely token's probability
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;  // which of several answers to one prompt
};

// Error{InvalidArgument} naming the parameter: temperature 0…5, top_p (0, 1], min_p [0, 1],
// top_k 0…vocab, presence and frequency -2…2, repetition 0.1…10, at most 1024 biases of -100…100.
void validate(const SamplingParams& sampling, Index vocab_size);

struct Request {
  std::vector<TokenId> tokens{};  // the prompt; at least one
  SamplingParams sampling{};
  std::vector<std::string> stop{};  // at most 16 strings of 1…256 bytes; not part of the text
  bool ignore_eos = false;          // stop tokens do not end the text
  Index max_tokens = 16;            // generated ones
  Index min_tokens = 0;             // stop tokens are masked before that many
  Index logprobs = 0;               // alternatives reported with each token, 0…20; 0: none
};

enum class FinishReason { Stop, Length, Cancelled, Failed };
std::string_view name_of(FinishReason reason);  // "stop", "length", "cancelled", "failed"

// Natural logarithms of the model's own probabilities (before bias, penalties and temperature).
struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0;
};

// Wall time of one request, in seconds, each phase on its own.
struct Timings {
  Index prompt_tokens = 0, generated_tokens = 0;
  double queue_s = 0;   // from submit() to the first prefill step
  double prompt_s = 0;  // prefill, up to and including the first token
  double decode_s = 0;  // every later token
  double ttft_s = 0;    // queue_s + prompt_s
  double prompt_per_s() const {
    return prompt_s > 0 ? static_cast<double>(prompt_tokens) / prompt_s : 0;
  }
  // Tokens after the first over decode_s.
  double decode_per_s() const {
    return decode_s > 0 ? static_cast<double>(generated_tokens - 1) / decode_s : 0;
  }
};

// What a request tells its sink: one per token, then one with `finished`.
struct Event {
  RequestId request = 0;
  std::optional<TokenId> token{};
  std::string text{};  // complete UTF-8 that became certain; may be empty
  double logprob = 0;
  std::vector<TokenLogprob> top{};  // of this position, most likely first; Request::logprobs many
  std::optional<FinishReason> finished{};
  Timings timings{};                  // with `finished`
  Index kv_bytes = 0, kv_blocks = 0;  // with `finished`: in use at the end
  std::string error{};                // with FinishReason::Failed
  ErrorCategory error_category = ErrorCategory::Internal;
};

// Where a request's events go. Called on the engine thread.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // false: full, and the event was left as it is. The engine parks the request and offers the event
  // again later.
  virtual bool try_push(Event&& event) noexcept = 0;
};

}  // namespace hone::infer
