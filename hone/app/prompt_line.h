// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/json_io.h"
#include "hone/infer/request.h"
#include "hone/infer/sampling_choice.h"

namespace hone::app {

// One line of `hone generate --prompts`: what to generate, with the options of the command line
// where the line does not set its own.
struct PromptLine {
  Json id;  // a string or a whole number; null if the line has none
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> tokens{};  // instead of `prompt`
  infer::Request request;                               // without tokens
  infer::SamplingChoice sampling;
};

// Reads a JSON object over `line`, which holds the defaults. Keys: id; prompt or tokens, one of
// them; max_tokens, min_tokens, stop (a string or several), ignore_eos, logprobs, json_schema (a
// schema, or its text), timeout, seed, temperature, top_k, top_p, min_p, repetition_penalty,
// presence_penalty, frequency_penalty, logit_bias ({"ID": value}). Throws Error{CorruptFile} for
// what is no JSON object, Error{InvalidArgument} for an unknown key and for a value of another
// type, both naming `where`; line.id is set if it could be read. Ranges are checked by
// Engine::submit().
void read_prompt_line(std::string_view text, const std::string& where, PromptLine& line);

}  // namespace hone::app
