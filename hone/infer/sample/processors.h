// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "hone/infer/request.h"

namespace hone::infer {

// Counts how often each token occurred, for the penalties. Output can be taken back, because drafts
// are part of the history only until they are rejected.
class TokenHistory {
 public:
  struct Count {
    bool in_prompt = false;
    Index in_output = 0;
  };

  explicit TokenHistory(std::span<const TokenId> prompt);
  void add_output(TokenId id);
  // Keeps the first `count` tokens of the output. Throws Error{InvalidArgument} if there are fewer.
  void truncate_output(Index count);
  Index output_size() const { return static_cast<Index>(output_.size()); }
  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }

 private:
  std::vector<TokenId> output_;
  std::unordered_map<TokenId, Count> counts_;
};

// The first part of the chain, applied to the logits of one position in this order. Finite logits
// stay finite, as they are limited to the range of float.
void apply_logit_bias(std::span<float> logits, std::span<const LogitBias> entries);

// Sets the logits of these tokens to -infinity, so that they cannot be drawn.
void mask_tokens(std::span<float> logits, std::span<const TokenId> ids);

// The repetition penalty for tokens of prompt and output (Keskar et al., "CTRL", 2019), then
// presence and frequency penalties for tokens of the output.
void apply_penalties(std::span<float> logits, const SamplingParams& sampling,
                     const TokenHistory& history);

}  // namespace hone::infer
