// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/infer/request.h"
#include "hone/server/api/fields.h"
#include "hone/server/api/text_service.h"
#include "hone/server/tools/output_splitter.h"
#include "hone/server/tools/tool_format.h"
#include "hone/text/chat_template/chat_template.h"

namespace hone::server {

// What a chat request of any API asks for.
struct ChatRequest {
  enum class ToolChoice { Auto, None, Required };
  text::Conversation conversation{};  // without tools
  std::vector<Json> functions{};      // of the tools, as templates show them
  std::vector<Tool> tools{};
  ToolChoice choice = ToolChoice::Auto;
  std::vector<std::string> allowed{};  // the tools that may be called; empty: all
  bool parallel_calls = true;
  std::string ignored{};       // tools that are left out, for X-Hone-Ignored
  std::string schema{};        // of the answer; empty: any text
  std::string schema_label{};  // where the request has it
};

// Calls `read` with each element of the array `tools`, if there is one.
void read_tools(Fields& fields, const std::function<void(Fields& tool)>& read);
// Notes that a tool is left out: one that a vendor's servers run.
void ignore_tool(ChatRequest& chat, const Fields& tool);
// Adds a tool. `function` has name, description and parameters; `label` is the place of the latter.
// Throws ApiError that names it.
void add_tool(ChatRequest& chat, Fields& function, const std::string& schema_name, bool is_strict);
// Allows a tool. Throws ApiError{400} unless it exists.
void allow_tool(ChatRequest& chat, std::string name, std::string_view param);

// The shapes of the OpenAI APIs in which they differ: `name_of` reads the name of a tool from an
// object that refers to it, `allowed_of` the object with `mode` and `tools` of a choice among
// several.
struct ToolChoiceShape {
  std::string (*name_of)(Fields& choice);
  const Json* (*allowed_of)(Fields& choice);
  std::string allowed_path;  // the place of that object
};
// Reads parallel_tool_calls and tool_choice of the OpenAI APIs, after the tools.
void read_tool_choice(Fields& fields, ChatRequest& chat, const ToolChoiceShape& shape);

// Reads what the chat API says of the prompt: messages, tools, tool_choice, parallel_tool_calls,
// chat_template_kwargs and reasoning_effort.
ChatRequest read_chat(Fields& fields);

// The prompt in the words of the model's template.
std::vector<text::TextSegment> chat_prompt(const TextService& service, const ChatRequest& chat);

// How to read the answer, and keywords of schemas that are not enforced.
struct ChatPlan {
  OutputSyntax syntax{};
  std::string ignored{};  // their JSON pointers and tools that are left out, for X-Hone-Ignored
};

// Sets the prompt, its grammar and the tokens that are visible; checks that the prompt fits into
// the context. `param` names the prompt. Throws ApiError, and what infer::compile_output() throws.
ChatPlan plan_chat(TextService& service, ChatRequest chat, infer::Request& request,
                   const std::string& param);

// Restricts a text that is no chat to a schema.
void set_schema(TextService& service, const std::string& schema, const std::string& label,
                infer::Request& request);

// Limits the output to `asked` tokens, and to what the context has left.
void set_length(const TextService& service, std::optional<Index> asked, infer::Request& request);

}  // namespace hone::server
