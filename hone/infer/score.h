// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hone/core/index.h"

namespace hone::infer {

// A text as a model has read it: the final hidden states [rows, width] of all tokens but the last.
// Row i predicts token i + 1.
struct HiddenStates {
  Index rows = 0, width = 0;
  std::vector<float> values;
};

struct ScoreOptions {
  // Called in order with the logits [rows, vocab] that predict positions first_position,
  // first_position + 1, … of the text.
  std::function<void(Index first_position, Index rows, std::span<const float> logits)> on_logits =
      {};
  std::uint64_t salt = 0;  // the tenant, as of a Request
};

struct ScoreResult {
  // logprobs[i] = log p(tokens[i + 1] | tokens[0 … i]), natural logarithm.
  std::vector<double> logprobs;
};

}  // namespace hone::infer
