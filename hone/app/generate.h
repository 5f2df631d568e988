// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"
#include "hone/infer/sampling_choice.h"

namespace hone::app {

struct GenerateOptions {
  std::filesystem::path model;
  infer::EngineOptions engine;  // generate() sets the executor
  // The prompt: text, or ids that are used unchanged.
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> prompt_ids;
  bool add_bos = true;         // if false, BOS is not added even if the tokenizer does
  bool parse_special = false;  // turn special tokens that the text spells out into their ids
  // Whether the prompt is a message of a user, which the model's chat template surrounds, after a
  // system message if `system` is not empty.
  bool chat = false;
  std::string system;
  infer::Request request;  // generate() sets its tokens and resolves its sampling
  infer::SamplingChoice sampling;
  bool use_model_defaults = true;
  bool echo = false;  // start the text with the prompt
  // Whether to add bw_share to the document: the share of the read bandwidth that decoding reached.
  // For models that exceed the caches, the bandwidth is measured after the run, which takes some
  // tenths of a second.
  bool measure_share = false;
  std::stop_token stop = {};                           // cancels when it is requested
  std::function<void(std::string_view)> on_text = {};  // called for each piece of final text

  text::EncodeOptions encoding() const {
    return {.add_bos = add_bos, .parse_special = parse_special};
  }
};

struct GenerateResult {
  std::string text;
  std::vector<infer::TokenId> tokens;  // the generated tokens
  infer::FinishReason finish_reason = infer::FinishReason::Length;
  infer::Timings timings;
  Json document;  // printed by `hone generate --json`
};

// Opens the model and runs one request to its end. Throws the error of a failed run. A request that
// can be refused without the weights is refused before they are read.
GenerateResult generate(const GenerateOptions& options, Executor& executor);

}  // namespace hone::app
