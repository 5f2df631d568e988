// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/executor.h"
#include "hone/core/json_io.h"
#include "hone/infer/engine.h"

namespace hone::app {

// What a user asked for; what is absent comes from the model's generation_config.json, else from
// infer::SamplingParams.
struct SamplingChoice {
  std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<Index> top_k{};
};

struct GenerateOptions {
  std::filesystem::path model;
  infer::EngineOptions engine;  // executor is set by generate()
  // The prompt: text, or ids that are used as they are.
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> prompt_ids;
  bool add_bos = true;     // false: not even where the tokenizer adds one
  infer::Request request;  // everything but tokens; its sampling is completed by `sampling`
  SamplingChoice sampling;
  bool use_model_defaults = true;
  bool echo = false;           // the text begins with the prompt
  bool measure_share = false;  // bw_share, for models beyond the caches: costs about a second
  const std::atomic<bool>* interrupted = nullptr;      // true: cancel
  std::function<void(std::string_view)> on_text = {};  // each piece as soon as it is certain
};

struct GenerateResult {
  std::string text;
  std::vector<infer::TokenId> tokens;  // generated ones
  infer::FinishReason finish_reason = infer::FinishReason::Length;
  infer::Timings timings;
  Json document;  // of `hone generate --json`
};

// `sampling` completed: choice, else the model's default, else the default of SamplingParams.
// do_sample = false in generation_config.json means temperature 0.
infer::SamplingParams resolve_sampling(infer::SamplingParams sampling, const SamplingChoice& choice,
                                       const Json& generation_defaults);

// Opens the model, runs one request to its end. An error of the run is thrown as such.
GenerateResult generate(const GenerateOptions& options, Executor& executor);

}  // namespace hone::app
