// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/grammar/token_vocabulary.h"
#include "hone/infer/request.h"
#include "hone/infer/sample/filters.h"
#include "hone/infer/sample/processors.h"

namespace hone::infer {

// Throws Error{Internal} that names the first token whose logit is not finite, if there is one.
void require_finite(std::span<const float> logits);

// The `count` most likely tokens with the log-softmax of the raw logits, most likely first; the
// lowest ids on ties.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, Index count,
                                       double log_sum_exp);

// Applies SamplingParams for one request: logit bias, mask, penalties, temperature, top-k, top-p,
// min-p, draw. The draw is kernels::gumbel_argmax() keyed by seed, choice and position. It does not
// depend on other draws, the batch or the history of a generator, and is the same on every
// instruction set.
class Sampler {
 public:
  Sampler(const SamplingParams& sampling, std::span<const TokenId> prompt)
      : sampling_(sampling),
        history_(sampling.repetition_penalty == 1 ? std::span<const TokenId>() : prompt) {}

  // Chooses the token at `position` (in the whole sequence, including the prompt) and adds it to
  // the history. Never chooses `masked` tokens, or tokens that are not in `allowed` (unless it is
  // null). Overwrites logits. Throws Error{Internal} if a logit is not finite, and
  // Error{InvalidArgument} if every token is masked; the history is then unchanged.
  TokenId choose(std::span<float> logits, Index position, std::span<const TokenId> masked,
                 const grammar::TokenMask* allowed = nullptr);

  // Writes the distribution that choose() draws from to `distribution`, without a draw. Overwrites
  // logits. Throws what choose() throws.
  void write_distribution(std::span<float> logits, std::span<const TokenId> masked,
                          std::span<double> distribution,
                          const grammar::TokenMask* allowed = nullptr);

  // The history of the penalties. Speculation adds tokens that it chose by write_distribution() and
  // takes back rejected drafts.
  TokenHistory& history() { return history_; }

 private:
  float process(std::span<float> logits, std::span<const TokenId> masked,
                const grammar::TokenMask* allowed) const;

  SamplingParams sampling_;
  TokenHistory history_;
};

}  // namespace hone::infer
