// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/request.h"
#include "hone/infer/sample/processors.h"

namespace hone::infer {

// The largest element, ties to the lowest index; NaN never wins. values must not be empty.
TokenId argmax(std::span<const float> values);

// argmax over the candidates of logit + G, G standard Gumbel from Philox keyed by the seed with
// counter (position, token id, purpose, choice): a draw from their softmax that depends on no other
// draw, so neither on the batch nor on the history of the generator.
TokenId draw_gumbel(std::span<const Candidate> candidates, const SamplingParams& sampling,
                    Index position);

// The `count` most likely tokens with log-softmax of the raw logits, ties to the lowest id.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, Index count,
                                       double log_sum_exp);

// The chain of SamplingParams for one request.
class Sampler {
 public:
  Sampler(const SamplingParams& sampling, std::span<const TokenId> prompt)
      : sampling_(sampling), history_(prompt) {}

  // Chooses the token at `position` (of the whole sequence, prompt included) and adds it to the
  // history. Overwrites logits. `masked` tokens are never chosen.
  TokenId choose(std::span<float> logits, Index position, std::span<const TokenId> masked);

 private:
  SamplingParams sampling_;
  TokenHistory history_;
};

}  // namespace hone::infer
