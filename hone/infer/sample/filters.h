// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/request.h"
#include "hone/kernels/sampling/gumbel.h"

namespace hone::infer {

struct Candidate {
  float logit = 0;
  TokenId id = 0;
};

// Orders by likelihood, then by the lowest id. top-k and top-p keep the first tokens of this order.
constexpr bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The `count` likeliest tokens in no particular order; all tokens if there are fewer. Logits may be
// -infinity, but not NaN. If `count` is at most 1/64 of the vocabulary, this takes one scan and a
// selection among few tokens.
std::vector<Candidate> likeliest_tokens(std::span<const float> logits, Index count);

// The tokens that top-k, top-p and min-p keep, in this order, for logits after bias, mask and
// penalties. top-p and min-p use the probabilities at the temperature (> 0). top-p renormalizes the
// tokens that top-k keeps, and includes the token that reaches its share. The likeliest token is
// always kept. `highest` is the largest logit, which must be finite. The result is the same on
// every instruction set.
kernels::TokenCut filter_tokens(std::span<const float> logits, float highest,
                                const SamplingParams& sampling);

// distribution[i] = the probability of token i at the temperature among the tokens that
// filter_tokens() keeps; 0 for others. At temperature 0, it is 1 for the largest logit, with the
// lowest id on ties. Computed in double.
void write_distribution(std::span<const float> logits, float highest,
                        const SamplingParams& sampling, std::span<double> distribution);

}  // namespace hone::infer
