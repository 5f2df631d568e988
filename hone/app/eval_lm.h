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
  std::string data_name = "eval";  // the name of the text or the ids in errors
  Index max_tokens = 0;            // from the beginning of the text; 0 means all
  Index window = 0;                // tokens per window; 0 means the model's context, at most 1024
  infer::KvDtype kv = infer::KvDtype::Float16;
  infer::Activations activations = infer::Activations::Int8;
  infer::WeightOptions weights = {};  // of the model; the baseline stays as its file has it
  std::stop_token stop = {};          // requested: Error{Cancelled} before the next window
  const Clock* clock = nullptr;       // of the duration and the progress; null: steady_clock()
};

struct EvalResult {
  compress::QualityCard card;
  Index window = 0, windows = 0;
  double seconds = 0;
  Json weights;           // weights_json(); null if they are as in the file
  Json document() const;  // of `hone eval --json`
};

// Reads a UTF-8 text file for EvalOptions::documents. Throws Error{CorruptFile} if it is empty or
// not UTF-8.
std::vector<std::string> read_eval_text(const std::filesystem::path& path);

// Throws the Error that says why `model`, with a tokenizer from elsewhere unless that is empty, is
// no language model that can be evaluated.
void check_language_model(const std::filesystem::path& model,
                          const std::filesystem::path& tokenizer);

// Teacher-forced quality of a language model, with a baseline also token by token against it
// (docs/compression.md, "Quality card"). Memory: the hidden states of one window, and some rows of
// logits of each model.
// Error{CorruptFile}: nothing to predict, or a model with a weight that is NaN or infinite;
// Error{InvalidArgument}: a window of less than 2 tokens or above the context, a baseline whose
// vocabulary or ids differ.
EvalResult evaluate(const EvalOptions& options, Executor& executor);

}  // namespace hone::app
