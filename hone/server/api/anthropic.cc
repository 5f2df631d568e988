// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/anthropic.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/server/api/anthropic_answer.h"
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

Json tools_of(const Json& tools, const Fields& fields) {
  if (!tools.is_array()) fields.fail("tools", "an array");
  Json out = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], concat("tools[", i, "]"));
    const Json* schema = tool.find("input_schema");
    if (schema == nullptr) continue;  // a tool of the vendor's own servers
    out.push_back({{"type", "function"},
                   {"function",
                    {{"name", tool.required_string("name")},
                     {"description", tool.string("description").value_or("")},
                     {"parameters", *schema}}}});
  }
  return out.empty() ? Json() : out;
}

text::Conversation read_conversation(Fields& fields) {
  text::Conversation out{.now = std::time(nullptr)};
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
  if (const Json* tools = fields.find("tools")) out.tools = tools_of(*tools, fields);
  if (const Json* choice = fields.find("tool_choice")) {
    const std::string type = choice->is_object() ? choice->value("type", "") : "";
    if (type == "none") out.tools = Json();
    if (type == "any" || type == "tool") fields.refuse("tool_choice");
  }
  return out;
}

}  // namespace

void post_messages(Service& service, const std::shared_ptr<Exchange>& exchange,
                   std::uint64_t salt) {
  const Json body = parse_json(exchange->request().body, "the body");
  Fields fields(body);
  check_model(fields, service);
  std::vector<infer::TokenId> ids =
      prompt_ids(service, render_prompt(service, read_conversation(fields)));
  check_context(std::ssize(ids), service, "messages");
  infer::Request request;
  read_sampling(fields, service, request);
  request.salt = salt;
  request.stop = fields.strings("stop_sequences", 16);
  std::erase_if(request.stop, [](const std::string& stop) { return stop.empty(); });
  const Index left = service.engine().info().context - std::ssize(ids);
  request.max_tokens =
      std::min(fields.integer("max_tokens", 1, Index{1} << 30).value_or(left), left);
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  const bool streams = fields.boolean("stream").value_or(false);
  for (const char* name : {"metadata", "service_tier", "thinking", "context_management"}) {
    fields.accept(name);
  }
  const Index prompt_tokens = std::ssize(ids);
  request.tokens = std::move(ids);
  auto answer = std::make_unique<AnthropicAnswer>(service, exchange, streams, prompt_tokens,
                                                  request.stop, fields.ignored_names());
  std::vector<infer::Request> requests;
  requests.push_back(std::move(request));
  std::make_shared<Generation>(service, exchange, std::move(answer))->start(std::move(requests));
}

void post_count_tokens(Service& service, const std::shared_ptr<Exchange>& exchange,
                       std::uint64_t /*salt*/) {
  const Json body = parse_json(exchange->request().body, "the body");
  Fields fields(body);
  check_model(fields, service);
  const auto ids = prompt_ids(service, render_prompt(service, read_conversation(fields)));
  exchange->respond({.body = Json({{"input_tokens", ids.size()}}).dump() + "\n"});
}

}  // namespace hone::server
