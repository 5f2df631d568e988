// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/request.h"
#include "hone/infer/sample/processors.h"

namespace hone::infer {

// The index of the largest element, the lowest on ties; NaN never wins. `values` must not be empty.
TokenId argmax(std::span<const float> values);

// Draws from the softmax of the candidates as the argmax of logit + G, where G is standard Gumbel
// from Philox keyed by the seed with counter (position, token id, purpose, choice). A draw depends
// on no other draw, and so neither on the batch nor on a generator's history.
TokenId draw_gumbel(std::span<const Candidate> candidates, const SamplingParams& sampling,
                    Index position);

// The `count` most likely tokens with the log-softmax of the raw logits; the lowest ids on ties.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, Index count,
                                       double log_sum_exp);

// Applies SamplingParams for one request.
class Sampler {
 public:
  Sampler(const SamplingParams& sampling, std::span<const TokenId> prompt)
      : sampling_(sampling), history_(prompt) {}

  // Chooses the token at `position` (in the whole sequence, including the prompt) and adds it to
  // the history. Overwrites logits. `masked` tokens and those whose logit is -infinity are never
  // chosen. Throws Error{InvalidArgument} if no other token is left.
  TokenId choose(std::span<float> logits, Index position, std::span<const TokenId> masked);

 private:
  SamplingParams sampling_;
  TokenHistory history_;
};

}  // namespace hone::infer
