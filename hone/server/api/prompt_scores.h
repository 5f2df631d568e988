// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/engine.h"

namespace hone::server {

// The log probabilities of the tokens of a text but the first, and of the most likely ones at each
// place, most likely first.
struct PromptScores {
  std::vector<double> logprobs;
  std::vector<std::vector<infer::TokenLogprob>> top;
};

// On the thread of the engine. `top` is the number of the most likely tokens, `salt` the
// tenant. A text of one token
// has no scores. Throws what Engine::score() throws.
PromptScores score_prompt(infer::Engine& engine, std::span<const infer::TokenId> tokens, Index top,
                          std::uint64_t salt);

}  // namespace hone::server
