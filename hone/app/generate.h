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

// The parameters that the user chose. Others come from the model's generation_config.json or, if
// absent there, from infer::SamplingParams.
struct SamplingChoice {
  std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<Index> top_k{};
};

struct GenerateOptions {
  std::filesystem::path model;
  infer::EngineOptions engine;  // generate() sets the executor
  // The prompt: text, or ids that are used unchanged.
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> prompt_ids;
  bool add_bos = true;     // if false, BOS is not added even if the tokenizer does
  infer::Request request;  // without tokens; `sampling` completes its sampling
  SamplingChoice sampling;
  bool use_model_defaults = true;
  bool echo = false;  // start the text with the prompt
  // Add bw_share, the share of the read bandwidth that decoding reached, to the document. For
  // models beyond the caches, memory is streamed after the run, for some tenths of a second.
  bool measure_share = false;
  const std::atomic<bool>* interrupted = nullptr;      // cancels when it becomes true
  std::function<void(std::string_view)> on_text = {};  // called for each piece of final text
};

struct GenerateResult {
  std::string text;
  std::vector<infer::TokenId> tokens;  // the generated tokens
  infer::FinishReason finish_reason = infer::FinishReason::Length;
  infer::Timings timings;
  Json document;  // of `hone generate --json`
};

// Completes `sampling` by the user's choice or, if absent, by the model's default; otherwise the
// defaults of SamplingParams remain. do_sample = false in generation_config.json means temperature
// 0.
infer::SamplingParams resolve_sampling(infer::SamplingParams sampling, const SamplingChoice& choice,
                                       const Json& generation_defaults);

// Opens the model and runs one request to its end. Throws the error of a failed run.
GenerateResult generate(const GenerateOptions& options, Executor& executor);

}  // namespace hone::app
