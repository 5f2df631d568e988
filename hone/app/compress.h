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
  std::filesystem::path tokenizer;  // instead of the model's own; or empty
  compress::Recipe recipe;
  // The file it was read from, which must not be overwritten; may be empty.
  std::filesystem::path recipe_file;
  // The text for the quality card, of which the held-out part is used: a file, a folder or JSON
  // lines. If empty, recipe.eval_data; if that is empty too, held-out embedded stories.
  std::filesystem::path data;
  std::stop_token stop = {};
};

struct CompressOutcome {
  Json document;            // printed by --json: passes[], sizes{}, quality, out, …
  bool written = false;     // not if no pass was applied
  bool gates_held = false;  // or the recipe keeps what breaks them; and no pass failed
};

// Compresses a language model into hone's artifact `out`. Quality is measured on the written
// artifact with the runtime. The original is not modified.
CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer);

// The outcome as readable text.
std::string to_table(const CompressOutcome& outcome);

}  // namespace hone::app
