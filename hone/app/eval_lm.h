// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/compress/quality/quality_card.h"
#include "hone/core/file/json_io.h"
#include "hone/core/machine/clock.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"

namespace hone::app {

struct EvalOptions {
  std::filesystem::path model;
  std::filesystem::path baseline;   // empty if none
  std::filesystem::path tokenizer;  // used if the model has none
  // The text to predict: UTF-8 documents, or ids, which need no tokenizer.
  std::vector<std::string> documents;
  std::optional<std::vector<infer::TokenId>> token_ids;
  std::string data_name = "eval";  // name of the text or the ids in errors
  Index max_tokens = 0;            // limit, from the start of the text; 0 means all
  Index window = 0;                // tokens per window; 0 means the model's context, at most 1024
  infer::KvDtype kv = infer::KvDtype::Float16;
  infer::Activations activations = infer::Activations::Int8;
  infer::WeightOptions weights = {};  // for the model; the baseline keeps its file's types
  std::stop_token stop = {};          // requested: Error{Cancelled} before the next window
  const Clock* clock = nullptr;       // for the duration and the progress; null: steady_clock()
};

struct EvalResult {
  compress::QualityCard card;
  Index window = 0, windows = 0;
  double seconds = 0;
  Json weights;           // weights_json(); null if they are as in the file
  Json document() const;  // printed by `hone eval --json`
};

// Reads a UTF-8 text file, or the held-out built-in stories, for EvalOptions::documents. Throws
// Error{CorruptFile} if it is empty or not UTF-8.
std::vector<std::string> read_eval_text(const std::filesystem::path& path);

// Throws an Error that says why `model` is not a language model that can be evaluated. A
// `tokenizer` that is not empty overrides the model's own.
void check_language_model(const std::filesystem::path& model,
                          const std::filesystem::path& tokenizer);

// Measures the teacher-forced quality of a language model. With a baseline, also compares the two
// models token by token (docs/compression.md, "Quality card"). Needs memory for the hidden states
// of one window and some rows of logits of each model.
// Throws Error{CorruptFile} if the text has nothing to predict, or if a model has a weight that is
// NaN or infinite. Throws Error{InvalidArgument} if max_tokens leaves nothing to predict, for a
// window of less than 2 tokens or above the context of either model, and for a baseline with
// another vocabulary or other ids.
EvalResult evaluate(const EvalOptions& options, Executor& executor);

}  // namespace hone::app
