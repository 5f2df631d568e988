// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/text/chat_template/syntax.h"
#include "hone/text/tokenizer.h"

namespace hone::text {

// What a chat template turns into a prompt, in the shapes of the OpenAI API.
struct Conversation {
  Json messages = Json::array();      // objects with `role` and `content`
  Json tools = Json();                // an array of definitions, or null
  Json variables = Json::object();    // further names for the template, such as enable_thinking
  bool add_generation_prompt = true;  // whether the prompt ends where an answer begins
  std::time_t now = 0;                // for strftime_now(), in local time
};

// A Jinja template of chat models, as transformers renders it. Immutable; all methods are
// thread-safe.
class ChatTemplate {
 public:
  // `special_tokens` are names for the template: {"bos_token", "<s>"}, … Throws Error{CorruptFile}
  // or Error{Unsupported} that names `where` and the line.
  ChatTemplate(std::string_view source, std::map<std::string, std::string> special_tokens,
               std::string_view where = "chat template");

  // The prompt. Its segments may spell special tokens where the template wrote them, and tokens
  // that are added but not special also in earlier answers; text of other messages, names and tools
  // stays text. Throws Error{InvalidArgument} with the message of raise_exception(), or for
  // messages with which the template fails.
  std::vector<TextSegment> render(const Conversation& conversation) const;
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  Block program_;
  std::map<std::string, std::string> special_tokens_;
};

// The text of all segments.
std::string joined_text(const std::vector<TextSegment>& segments);

}  // namespace hone::text
