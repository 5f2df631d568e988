// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hone/compress/recipe.h"
#include "hone/core/executor.h"
#include "hone/core/json_io.h"
#include "hone/core/measurer.h"

namespace hone::app {

struct CompressJob {
  std::filesystem::path model, out;
  std::filesystem::path tokenizer;  // instead of the model's own; or empty
  compress::Recipe recipe;
  std::filesystem::path recipe_file;  // what it was read from, which stays as it is; or empty
  // Text for the quality card: a file, a folder or JSON lines, of which the held-out part counts;
  // empty: recipe.eval_data, and where that is empty too, held-out embedded stories.
  std::filesystem::path data;
  std::function<bool()> cancelled;  // may be empty
};

struct CompressOutcome {
  Json document;  // what --json prints (product: passes[], sizes{}, quality, out)
  bool written = false;
};

// Compresses a language model into `out`, hone's artifact. Quality is measured on the artifact as
// written, opened by the runtime. The original is only read.
CompressOutcome compress_model(const CompressJob& job, Executor& executor, Measurer& measurer);

// The outcome for people.
std::string to_table(const CompressOutcome& outcome);

}  // namespace hone::app
