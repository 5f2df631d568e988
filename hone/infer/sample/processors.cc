// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/sample/processors.h"

#include <algorithm>
#include <limits>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// A changed logit. A masked one stays masked, any other one finite.
float limited(float before, double after) {
  if (before == kMasked) return kMasked;
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(after, -kLargest, kLargest));
}

}  // namespace

TokenHistory::TokenHistory(std::span<const TokenId> prompt) {
  for (const TokenId id : prompt) counts_[id].in_prompt = true;
}

void TokenHistory::add_output(TokenId id) {
  ++counts_[id].in_output;
  output_.push_back(id);
}

void TokenHistory::truncate_output(Index count) {
  HONE_CHECK(count >= 0 && count <= output_size(), "truncate_output",
             concat("0 to ", output_size(), " tokens"), count);
  for (; output_size() > count; output_.pop_back()) {
    const auto found = counts_.find(output_.back());
    if (--found->second.in_output == 0 && !found->second.in_prompt) counts_.erase(found);
  }
}

void apply_logit_bias(std::span<float> logits, std::span<const LogitBias> entries) {
  for (const LogitBias& entry : entries) {
    float& logit = logits[static_cast<std::size_t>(entry.id)];
    logit = limited(logit, static_cast<double>(logit) + entry.bias);
  }
}

void mask_tokens(std::span<float> logits, std::span<const TokenId> ids) {
  for (const TokenId id : ids) logits[static_cast<std::size_t>(id)] = kMasked;
}

void apply_penalties(std::span<float> logits, const SamplingParams& sampling,
                     const TokenHistory& history) {
  const double repetition = sampling.repetition_penalty, presence = sampling.presence_penalty;
  const double frequency = sampling.frequency_penalty;
  if (repetition == 1 && presence == 0 && frequency == 0) return;
  for (const auto& [id, count] : history.counts()) {
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = limited(logit, logit < 0 ? logit * repetition : logit / repetition);
    if (count.in_output == 0) continue;
    logit = limited(logit, logit - presence - frequency * static_cast<double>(count.in_output));
  }
}

}  // namespace hone::infer
