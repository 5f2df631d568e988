// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "hone/app/generate.h"

namespace hone::app {

struct GenerateBatchOptions {
  // Defaults for options that a line does not set. Their prompt is not used. Up to
  // engine.max_sequences requests run together.
  GenerateOptions defaults;
  std::filesystem::path prompts;  // one JSON object a line, see read_prompt_line()
  // The results are written here, as a ResultFile. If empty, on_line receives each result.
  std::filesystem::path output;
  std::function<void(std::string_view)> on_line = {};
  bool resume = false;  // continue the results of an unfinished job
};

struct GenerateBatchResult {
  Index prompts = 0;    // lines with results, including those of the continued job
  Index continued = 0;  // results of the continued job
  Index failed = 0;     // results with an error
  Index generated_tokens = 0;
  double seconds = 0;
  bool is_interrupted = false;
  Json document;  // printed by `hone generate --prompts --json`
};

// Opens the model and answers every line of a file, many at a time. The results, one JSON object a
// line, have the order of the file:
//   {"id", "digest", "text", "tokens", "finish_reason", "timings"}, "logprobs" if asked for, and
//   "schema_ignored" where keywords of a schema may be ignored; or
//   {"id", "digest", "finish_reason": "failed", "error": {"category", "message"}}.
// `id` is the id of the line, or its number. `digest` depends on the line, the options that affect
// texts, and the names, sizes and times of change of the files of the model, its tokenizer and,
// with the exact rule, its draft model. A job therefore continues only its own results; for others
// it throws Error{InvalidArgument}.
// A line that fails does not end the job, unless a file of the model was truncated. If every line
// fails, the first error is thrown after all results are written. Lines are read as results are
// written, so memory grows only with their ids. Before the model is opened, a file (not a stream)
// in which two lines have equal ids is refused with Error{InvalidArgument}.
GenerateBatchResult generate_batch(const GenerateBatchOptions& options, Executor& executor);

}  // namespace hone::app
