// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "hone/app/generate.h"

namespace hone::app {

struct GenerateBatchOptions {
  // What lines of the file do not set; its prompt is not used. engine.max_sequences run together.
  GenerateOptions defaults;
  std::filesystem::path prompts;  // one JSON object a line, see read_prompt_line()
  // Where results are written, as a ResultFile; if empty, on_line gets each.
  std::filesystem::path output;
  std::function<void(std::string_view)> on_line = {};
  bool resume = false;  // continue the results of a job that has not ended
};

struct GenerateBatchResult {
  Index prompts = 0;    // lines with results, of this job and of the one that it continues
  Index continued = 0;  // results that were there
  Index failed = 0;     // results with an error
  Index generated_tokens = 0;
  double seconds = 0;
  bool is_interrupted = false;
  Json document;  // of `hone generate --prompts --json`
};

// Opens the model and answers every line of a file, many at a time. The results, one JSON object a
// line, have the order of the file:
//   {"id", "digest", "text", "tokens", "finish_reason", "timings"}, "logprobs" if asked for, and
//   "schema_ignored" where keywords of a schema may be ignored; or
//   {"id", "digest", "finish_reason": "failed", "error": {"category", "message"}}.
// `id` is that of the line, or its number. `digest` depends on the line, the options that texts
// depend on and the size of the model, so that a job only continues results of its own:
// Error{InvalidArgument} otherwise. A line that fails does not end the job; if every line fails,
// the first error is thrown once all results are written. Lines are read as results are written, so
// that memory depends on their number only for their ids. Before the model is opened, a file (not a
// stream) in which two lines have equal ids is refused: Error{InvalidArgument}.
GenerateBatchResult generate_batch(const GenerateBatchOptions& options, Executor& executor);

}  // namespace hone::app
