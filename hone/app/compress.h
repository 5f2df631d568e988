// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "hone/compress/recipe.h"
#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"

namespace hone::app {

struct CompressJob {
  std::filesystem::path model, out;
  std::filesystem::path tokenizer;  // overrides the model's tokenizer; may be empty
  compress::Recipe recipe;
  // The file of the recipe, which must not be overwritten. May be empty.
  std::filesystem::path recipe_file;
  // Text for the quality card: a file, a folder or JSON lines. Only its held-out part is used. If
  // empty, recipe.eval_data is used; if that is empty too, embedded held-out stories.
  std::filesystem::path data;
  bool plan = false;  // only choose the formats for a budget and describe them
  std::stop_token stop = {};
};

struct CompressOutcome {
  Json document;            // printed by --json: passes[], sizes{}, quality, out, …
  bool written = false;     // false if no pass was applied, or for a plan
  bool gates_held = false;  // no pass failed, and no gate rejected one
};

// Compresses a language model into hone's artifact `out`. Quality is measured on the written
// artifact with the runtime. The original is not modified.
CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer);

// The outcome as readable text.
std::string to_table(const CompressOutcome& outcome);

}  // namespace hone::app
