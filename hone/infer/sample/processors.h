// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "hone/infer/request.h"

namespace hone::infer {

// Counts how often each token occurred, for the penalties.
class TokenHistory {
 public:
  struct Count {
    bool in_prompt = false;
    Index in_output = 0;
  };

  explicit TokenHistory(std::span<const TokenId> prompt);
  void add_output(TokenId id) { ++counts_[id].in_output; }
  const std::unordered_map<TokenId, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<TokenId, Count> counts_;
};

// The first part of the chain, applied to the logits of one position: bias, then repetition,
// presence and frequency penalties.
void apply_bias_and_penalties(std::span<float> logits, const SamplingParams& sampling,
                              const TokenHistory& history);

// Sets the logits of these tokens to -infinity, so that they cannot be drawn.
void mask_tokens(std::span<float> logits, std::span<const TokenId> ids);

struct Candidate {
  float logit = 0;
  TokenId id = 0;
};

// The rest of the chain before the draw: logits / temperature (> 0), then top-k, top-p, min-p.
// Returns the remaining tokens, at least one, in no particular order and without -infinity and NaN.
// Selects partially, without sorting the vocabulary. Throws Error{InvalidArgument} if every logit
// is masked.
std::vector<Candidate> filter_candidates(std::span<const float> logits,
                                         const SamplingParams& sampling);

}  // namespace hone::infer
