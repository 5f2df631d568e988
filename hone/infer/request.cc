// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/request.h"

#include <cmath>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

void check_range(double value, double low, double high, std::string_view name) {
  if (value >= low && value <= high) return;  // false for NaN
  fail_argument(name, concat("a number in [", low, ", ", high, "]"), concat(value));
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

std::string_view name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::QueueFull:
      return "queue_full";
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
    case FinishReason::Cancelled:
      return "cancelled";
    case FinishReason::Failed:
      break;
  }
  return "failed";
}

}  // namespace hone::infer
