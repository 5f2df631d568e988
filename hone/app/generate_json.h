// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/infer/engine.h"

namespace hone::app {

// Parts of the documents of `hone generate`.

// {prompt_tokens, prompt_per_s, gen_tokens, gen_per_s, ttft_ms, prompt_ms, gen_ms}
Json timings_json(const infer::Timings& timings);
// [{id, piece, logprob, top: [{id, piece, logprob}]}], one for each token of the events. A piece is
// null if the model has no tokenizer or the tokenizer has no such piece.
Json logprobs_json(const infer::Engine& engine, std::span<const infer::Event> events);
// The text of a prompt that was given as ids. Ids without a piece add nothing.
std::string text_of(const infer::Engine& engine, std::vector<infer::TokenId> ids);

}  // namespace hone::app
