// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/compress/recipe.h"
#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"

namespace hone::app {

struct CompressJob {
  std::filesystem::path model, out;
  std::string to;                   // hf, hone or gguf; if empty, the name of `out` decides
  std::filesystem::path tokenizer;  // overrides the model's tokenizer; may be empty
  compress::Recipe recipe;
  // The file of the recipe, which must not be overwritten. May be empty.
  std::filesystem::path recipe_file;
  // Texts for the quality card: files, folders or JSON lines. Only their held-out parts are used.
  // If there are none, those of the recipe are used, and without these embedded held-out stories.
  // A calibration text adds what was not used for calibration.
  std::vector<std::filesystem::path> data;
  bool plan = false;  // only choose the formats for a budget and describe them
  std::stop_token stop = {};
};

struct CompressOutcome {
  Json document;            // printed by --json: passes[], sizes{}, quality, out, …
  bool written = false;     // false if no pass was applied, or for a plan
  bool gates_held = false;  // no pass failed, and no gate rejected one
};

// Compresses a language model into `out`. Quality is measured on written files with the runtime.
// The original is not modified. Finished layers are kept in the folder "<out>.resume" until the
// output is written, so that an interrupted run continues when it is started again.
CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer);

// The outcome as readable text.
std::string to_table(const CompressOutcome& outcome);

}  // namespace hone::app
