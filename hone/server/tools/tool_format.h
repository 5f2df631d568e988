// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hone/infer/output_format.h"
#include "hone/text/tokenizer.h"

namespace hone::server {

// How the models of a family write calls of tools:
//   begin [white space] open {head NAME middle ARGUMENTS tail} joined by `between`, then close
struct ToolFormat {
  std::string_view name;
  std::string_view mark;       // templates of the family contain it
  std::string_view begin;      // a control token, or text
  bool only_at_start = false;  // whether calls are the whole answer
  bool has_space = false;      // whether white space may follow `begin`
  std::string_view open{}, head{}, middle{}, tail{}, between{}, close{};
  bool repeats = false;  // whether an answer may have several calls
};

// The format in which a template shows calls. Templates that show none get the first one, and their
// tools go into a system message.
const ToolFormat& find_tool_format(std::string_view chat_template);
// Whether a template shows the model its tools.
bool shows_tools(std::string_view chat_template);

// A tool that the model may call.
struct Tool {
  std::string name;
  std::string parameters;  // the text of a JSON schema
  bool is_strict = false;
  std::string label;  // its place in the request, for messages
};

// The text of a name in a call.
std::string spelled_name(const ToolFormat& format, std::string_view name);

// The parts of calls of these tools, without `begin`. With a control token of the tokenizer where
// its spelling is one.
infer::OutputFormat call_format(const ToolFormat& format, const std::vector<Tool>& tools,
                                bool repeats, const text::Tokenizer& tokenizer);
// The parts of a text that may spell control tokens.
std::vector<infer::OutputPart> text_parts(std::string_view text, const text::Tokenizer& tokenizer);

}  // namespace hone::server
