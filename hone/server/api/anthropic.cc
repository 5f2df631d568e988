// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/anthropic.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/server/api/anthropic_answer.h"
#include "hone/server/api/chat_request.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/messages.h"
#include "hone/server/api/request_fields.h"

namespace hone::server {
namespace {

// A line of some clients that differs in each request, and would keep the rest out of the cache.
constexpr std::string_view kVolatile = "x-anthropic-billing-header";

// Text of a string or of an array of text blocks.
std::string text_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    throw ApiError(400, concat(path, ": expected a string or an array of blocks"), path);
  }
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    Fields block(content[i], concat(path, "[", i, "]"));
    if (block.required_string("type") != "text") block.fail("type", "text");
    const std::string text = block.required_string("text");
    if (text.starts_with(kVolatile)) continue;
    out += concat(out.empty() ? "" : "\n", text);
  }
  return out;
}

// The messages of the chat API that say the same as one of /v1/messages.
void convert_message(Fields& message, Json& out) {
  const std::string role = message.required_string("role");
  if (role != "user" && role != "assistant" && role != "system") {
    message.fail("role", "user, assistant or system");
  }
  const Json* content = message.find("content");
  if (content == nullptr) message.fail("content", "a string or an array of blocks");
  Json own = {{"role", role}, {"content", ""}};
  if (content->is_string()) {
    own["content"] = *content;
    out.push_back(std::move(own));
    return;
  }
  if (!content->is_array()) message.fail("content", "a string or an array of blocks");
  std::string text;
  bool has_text = false;
  for (std::size_t i = 0; i < content->size(); ++i) {
    Fields block((*content)[i], message.path_of(concat("content[", i, "]")));
    const std::string type = block.required_string("type");
    if (type == "text") {
      text += concat(has_text ? "\n" : "", block.required_string("text"));
      has_text = true;
    } else if (type == "tool_result") {
      const Json* result = block.find("content");
      out.push_back({{"role", "tool"},
                     {"tool_call_id", block.required_string("tool_use_id")},
                     {"content", result == nullptr ? std::string()
                                                   : text_of(*result, block.path_of("content"))}});
    } else if (type == "tool_use") {
      const Json* input = block.find("input");
      own["tool_calls"].push_back({{"id", block.required_string("id")},
                                   {"type", "function"},
                                   {"function",
                                    {{"name", block.required_string("name")},
                                     {"arguments", input == nullptr ? Json::object() : *input}}}});
    } else if (type == "thinking") {
      own["reasoning_content"] = block.string("thinking").value_or("");
    } else if (type != "redacted_thinking") {
      throw ApiError(
          400, concat(block.path_of("type"), ": This model takes text only, got \"", type, "\"."),
          block.path_of("type"), "unsupported_content");
    }
  }
  own["content"] = std::move(text);
  if (has_text || own.contains("tool_calls")) out.push_back(std::move(own));
}

void read_message_tools(Fields& fields, ChatRequest& chat) {
  read_tools(fields, [&chat](Fields& tool) {
    if (!tool.has("input_schema")) return ignore_tool(chat, tool);
    add_tool(chat, tool, "input_schema", tool.boolean("strict").value_or(false));
  });
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  Fields named(*choice, "tool_choice");
  const std::string type = named.required_string("type");
  chat.parallel_calls = !named.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    chat.choice = ChatRequest::ToolChoice::None;
  } else if (type == "any") {
    chat.choice = ChatRequest::ToolChoice::Required;
  } else if (type == "tool") {
    chat.choice = ChatRequest::ToolChoice::Required;
    allow_tool(chat, named.required_string("name"), "tool_choice");
  } else if (type != "auto") {
    named.fail("type", "auto, any, tool or none");
  }
}

// The schema of output_config.format.
void read_output_format(Fields& fields, ChatRequest& chat) {
  const Json* config = fields.find("output_config");
  if (config == nullptr) return;
  Fields inner(*config, "output_config");
  const Json* format = inner.find("format");
  if (format == nullptr) return;
  Fields described(*format, "output_config.format");
  if (described.required_string("type") != "json_schema") described.fail("type", "json_schema");
  const Json* schema = described.find("schema");
  if (schema == nullptr) described.fail("schema", "a JSON schema");
  chat.schema = schema->dump();
  chat.schema_label = described.path_of("schema");
}

ChatRequest read_messages_chat(Fields& fields) {
  ChatRequest chat;
  text::Conversation& out = chat.conversation;
  out.now = std::time(nullptr);
  if (const Json* system = fields.find("system")) {
    const std::string text = text_of(*system, "system");
    if (!text.empty()) out.messages.push_back({{"role", "system"}, {"content", text}});
  }
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", "an array of messages");
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    Fields message((*messages)[i], concat("messages[", i, "]"));
    convert_message(message, out.messages);
  }
  if (out.messages.empty()) fields.fail("messages", "a message with text");
  read_message_tools(fields, chat);
  read_output_format(fields, chat);
  return chat;
}

}  // namespace

void post_messages(TextService& service, const std::shared_ptr<Exchange>& exchange,
                   std::uint64_t salt) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  check_model(fields, service.model().id);
  infer::Request request;
  read_sampling(fields, service, request);
  request.salt = salt;
  request.stop = fields.strings("stop_sequences", 16);
  std::erase_if(request.stop, [](const std::string& stop) { return stop.empty(); });
  const ChatPlan plan = plan_chat(service, read_messages_chat(fields), request, "messages");
  set_length(service, fields.integer("max_tokens", 1, Index{1} << 30), request);
  const bool streams = fields.boolean("stream").value_or(false);
  for (const char* name : {"metadata", "service_tier", "context_management"}) fields.accept(name);
  if (!service.style().think_begin.empty()) fields.accept("thinking");
  AnthropicOptions options{.streams = streams,
                           .prompt_tokens = std::ssize(request.tokens),
                           .stops = request.stop,
                           .syntax = plan.syntax,
                           .ignored = join_names(fields.ignored_names(), plan.ignored)};
  auto answer = std::make_unique<AnthropicAnswer>(service, exchange, std::move(options));
  std::make_shared<Generation>(service, exchange, std::move(answer))->start(std::move(request));
}

void post_count_tokens(TextService& service, const std::shared_ptr<Exchange>& exchange,
                       std::uint64_t /*salt*/) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  check_model(fields, service.model().id);
  const auto ids = prompt_ids(service, chat_prompt(service, read_messages_chat(fields)));
  respond_json(*exchange, {{"input_tokens", ids.size()}});
}

}  // namespace hone::server
