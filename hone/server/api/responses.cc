// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/responses.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/server/api/chat_request.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/messages.h"
#include "hone/server/api/request_fields.h"
#include "hone/server/api/responses_answer.h"

namespace hone::server {
namespace {

// The message of the chat API that says the same as an item; null for an item that is none.
Json message_of(Fields& item) {
  const std::string type = item.string("type").value_or("message");
  if (type == "message") {
    Json out = {{"role", item.required_string("role")}};
    const Json* content = item.find("content");
    out["content"] = content == nullptr ? Json("") : *content;
    return out;
  }
  if (type == "function_call") {
    const Json function = {{"name", item.required_string("name")},
                           {"arguments", item.string("arguments").value_or("{}")}};
    const Json call = {
        {"id", item.required_string("call_id")}, {"type", "function"}, {"function", function}};
    return {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}};
  }
  if (type == "function_call_output") {
    const Json* output = item.find("output");
    return {{"role", "tool"},
            {"tool_call_id", item.required_string("call_id")},
            {"content", output == nullptr ? Json("") : *output}};
  }
  return {};  // reasoning, and items of the vendor's own tools
}

Json read_input(Fields& fields) {
  Json messages = Json::array();
  if (const auto instructions = fields.string("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json* input = fields.find("input");
  if (input == nullptr || (input->is_array() && input->empty())) {
    messages.push_back({{"role", "user"}, {"content", ""}});  // clients probe with no input
  } else if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else if (input->is_array()) {
    for (std::size_t i = 0; i < input->size(); ++i) {
      Fields item((*input)[i], concat("input[", i, "]"));
      if (Json message = message_of(item); !message.is_null()) {
        messages.push_back(std::move(message));
      }
    }
  } else {
    fields.fail("input", "a string or an array of items");
  }
  const Json whole = {{"messages", std::move(messages)}};
  Fields chat(whole);
  return read_messages(chat);
}

// Functions; tools that a vendor's servers run are left out.
void read_response_tools(Fields& fields, ChatRequest& chat) {
  read_tools(fields, [&chat](Fields& tool) {
    if (tool.required_string("type") != "function") return ignore_tool(chat, tool);
    add_tool(chat, tool, "parameters", tool.boolean("strict").value_or(false));
  });
  const auto name_of = [](Fields& choice) {
    if (choice.required_string("type") != "function") choice.fail("type", "function");
    return choice.required_string("name");
  };
  read_tool_choice(fields, chat,
                   {name_of, [](Fields& choice) { return &choice.json(); }, "tool_choice"});
}

// text.format, in the shape of response_format.
ResponseSchema read_format(Fields& fields) {
  const Json* text = fields.find("text");
  if (text == nullptr) return {};
  Fields inner(*text, "text");
  const Json* format = inner.find("format");
  if (format == nullptr) return {};
  Fields described(*format, "text.format");
  Json chat = {{"type", described.required_string("type")}};
  if (chat["type"] == "json_schema") chat["json_schema"] = *format;
  const Json whole = {{"response_format", std::move(chat)}};
  Fields named(whole);
  return read_response_format(named);
}

}  // namespace

void post_responses(TextService& service, const std::shared_ptr<Exchange>& exchange,
                    std::uint64_t salt) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  check_model(fields, service.model().id);
  fields.refuse("previous_response_id");
  fields.refuse("conversation");
  fields.refuse("background");
  const ResponseSchema schema = read_format(fields);
  ChatRequest chat;
  chat.schema = schema.text;
  chat.schema_label = schema.label;
  chat.conversation.messages = read_input(fields);
  chat.conversation.now = std::time(nullptr);
  read_response_tools(fields, chat);
  const bool parallel_calls = chat.parallel_calls;
  infer::Request request;
  read_sampling(fields, service, request);
  request.salt = salt;
  const ChatPlan plan = plan_chat(service, std::move(chat), request, "input");
  const auto most = fields.integer("max_output_tokens", 1, Index{1} << 30);
  set_length(service, most, request);
  const bool streams = fields.boolean("stream").value_or(false);
  if (body.value("store", Json()) == false) fields.accept("store");
  for (const char* name : {"metadata", "service_tier", "user", "include", "truncation", "reasoning",
                           "prompt_cache_key", "safety_identifier", "stream_options"}) {
    fields.accept(name);
  }
  Json echoed = {{"instructions", body.value("instructions", Json())},
                 {"max_output_tokens", most ? Json(*most) : Json()},
                 {"metadata", body.value("metadata", Json::object())},
                 {"parallel_tool_calls", parallel_calls},
                 {"temperature", request.sampling.temperature},
                 {"text", body.value("text", Json({{"format", {{"type", "text"}}}}))},
                 {"tool_choice", body.value("tool_choice", Json("auto"))},
                 {"tools", body.value("tools", Json::array())},
                 {"top_p", request.sampling.top_p}};
  ResponsesOptions options{.streams = streams,
                           .prompt_tokens = std::ssize(request.tokens),
                           .echoed = std::move(echoed),
                           .syntax = plan.syntax,
                           .ignored = join_names(fields.ignored_names(), plan.ignored)};
  auto answer = std::make_unique<ResponsesAnswer>(service, exchange, std::move(options));
  std::make_shared<Generation>(service, exchange, std::move(answer))->start(std::move(request));
}

}  // namespace hone::server
