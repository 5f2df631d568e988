// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "hone/core/index.h"

namespace hone::tune {

// The score of the actual token under one row of logits [vocab], computed in double precision from
// fp32 logits.
struct TokenScore {
  double log_probability = 0;  // natural log of softmax(logits)[target]
  Index top = 0;               // argmax; the lowest id on ties
};

// Throws Error{InvalidArgument} for an empty row, a target outside it, NaN, +infinity, or a row of
// -infinity.
TokenScore score_token(std::span<const float> logits, Index target);

// The scores of two models for one token.
struct PairScore {
  TokenScore model, baseline;
  double kl = 0;  // KL(softmax(baseline) || softmax(model)) >= 0, in nats
};
PairScore score_pair(std::span<const float> logits, std::span<const float> baseline, Index target);

}  // namespace hone::tune
