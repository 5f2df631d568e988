// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/file/line_reader.h"
#include "hone/infer/request.h"
#include "hone/infer/sampling_choice.h"

namespace hone::app {

// One line of `hone generate --prompts`: what to generate, with the options of the command line
// where the line does not set its own.
struct PromptLine {
  Json id;  // a string or a whole number; null if the line has none
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> tokens{};  // instead of `prompt`
  infer::Request request;                               // without tokens
  infer::SamplingChoice sampling;
};

// Reads a JSON object over `line`, which holds the defaults. Keys: id; prompt or tokens, one of
// them; max_tokens, min_tokens, stop (a string or several), ignore_eos, logprobs, json_schema (a
// schema, or its text), timeout, seed, temperature, top_k, top_p, min_p, repetition_penalty,
// presence_penalty, frequency_penalty, logit_bias ({"ID": value}). Throws Error{CorruptFile} for
// what is no JSON object, Error{InvalidArgument} for an unknown key and for a value of another
// type, both naming `where`; line.id is set if it could be read. Ranges are checked by
// Engine::submit().
void read_prompt_line(std::string_view text, const std::string& where, PromptLine& line);

// The id of a line's result: its own, or its number if it has none that can be read.
Json read_prompt_id(std::string_view text, Index number);

// The lines of `hone generate --prompts` that are not blank, with their numbers.
class PromptFile {
 public:
  static constexpr Index kMaxLineBytes = Index{64} << 20;  // more than any context holds

  // Errors as LineReader's.
  explicit PromptFile(const std::filesystem::path& path);

  // As LineReader::next().
  LineReader::Next next(std::string& line, int wait_ms);
  Index number() const { return number_; }  // of the line that was read last, from 1
  std::string where() const;                // the same for messages: "prompts.jsonl, line 3"

 private:
  LineReader reader_;
  std::string name_;
  Index number_ = 0;
};

// The number of lines; 0 for a stream, which can be read only once. Throws Error{InvalidArgument}
// for a file without lines, and one that names both lines where two have equal ids. Reads the whole
// file; ends early when `interrupted`, which may be null, becomes true. Takes the memory of the ids
// and 40 bytes a line.
Index count_prompts(const std::filesystem::path& path, const std::stop_token& stop);

}  // namespace hone::app
