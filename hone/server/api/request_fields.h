// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/infer/request.h"
#include "hone/infer/sampling_choice.h"
#include "hone/server/api/fields.h"
#include "hone/server/api/text_service.h"

namespace hone::server {

// Reads the fields that say how a text is sampled and where it ends, under the names of the OpenAI
// API and of hone's extensions: temperature, top_p, top_k, min_p, presence_penalty,
// frequency_penalty, repetition_penalty, logit_bias, seed, stop, stop_token_ids, min_tokens,
// ignore_eos, timeout, priority. What a client leaves out has the model's defaults; a seed is
// drawn. Throws ApiError.
void read_sampling(Fields& fields, const TextService& service, infer::Request& request);

// The text of the schema of response_format, and its place; empty without one.
struct ResponseSchema {
  std::string text{}, label{};
};
ResponseSchema read_response_format(Fields& fields);

// Throws ApiError{400} with the code context_length_exceeded, in the words that clients look for,
// unless so many tokens and one more fit into the context. `param` names the prompt.
void check_context(Index prompt_tokens, const TextService& service, const std::string& param);

// The same for a text that has not been encoded, if its bytes say that it cannot fit.
void check_bytes(Index bytes, const TextService& service, const std::string& param);

}  // namespace hone::server
