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

// One line of `hone generate --prompts`: what to generate. Options that the line does not set come
// from the command line.
struct PromptLine {
  Json id;  // a string or a whole number; null if the line has none
  std::string prompt;
  std::optional<std::vector<infer::TokenId>> tokens{};  // instead of `prompt`
  infer::Request request;                               // its tokens are not set
  infer::SamplingChoice sampling;
};

// Reads a JSON object into `line`, which contains the defaults. Keys: id; prompt or tokens, one of
// them; max_tokens, min_tokens, stop (a string or several), ignore_eos, logprobs, json_schema (a
// schema, or its text), timeout, seed, temperature, top_k, top_p, min_p, repetition_penalty,
// presence_penalty, frequency_penalty, logit_bias ({"ID": value}).
// Throws Error{CorruptFile} if the text is not a JSON object, and Error{InvalidArgument} for an
// unknown key or a value of another type. Both name `where`. line.id is set if it could be read.
// Engine::submit() checks the ranges.
void read_prompt_line(std::string_view text, const std::string& where, PromptLine& line);

// The id for a line's result: the id of the line, or its number if it has no readable id.
Json read_prompt_id(std::string_view text, Index number);

// The lines of `hone generate --prompts` that are not blank, with their numbers.
class PromptFile {
 public:
  static constexpr Index kMaxLineBytes = Index{64} << 20;  // exceeds any context

  // Throws what LineReader throws.
  explicit PromptFile(const std::filesystem::path& path);

  // Same as LineReader::next().
  LineReader::Next next(std::string& line, int wait_ms);
  Index number() const { return number_; }  // number of the last line read, from 1
  std::string where() const;                // its name in messages: "prompts.jsonl, line 3"

 private:
  LineReader reader_;
  std::string name_;
  Index number_ = 0;
};

// Returns the number of lines; 0 for a stream, which can be read only once. Throws
// Error{InvalidArgument} for a file without lines, and if two lines have equal ids; the message
// names both lines. Reads the whole file, but stops early when a stop is
// requested. Needs memory for the ids and 40 bytes a line.
Index count_prompts(const std::filesystem::path& path, const std::stop_token& stop);

}  // namespace hone::app
