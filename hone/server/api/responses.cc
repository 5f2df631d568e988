// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/responses.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "hone/core/check.h"
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

text::Conversation read_input(Fields& fields) {
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
  return {.messages = read_messages(chat), .now = std::time(nullptr)};
}

// Functions in the shape of the chat API; other kinds of tools are left out.
Json read_tools(Fields& fields) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array()) fields.fail("tools", "an array");
  Json out = Json::array();
  for (const Json& tool : *tools) {
    if (!tool.is_object() || tool.value("type", "") != "function") continue;
    Json function = tool;
    function.erase("type");
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && *choice == "none") return {};
  return out.empty() ? Json() : out;
}

// text.format, in the shape of response_format.
void read_format(Fields& fields, infer::Request& request) {
  const Json* text = fields.find("text");
  if (text == nullptr) return;
  Fields inner(*text, "text");
  const Json* format = inner.find("format");
  if (format == nullptr) return;
  Json chat = {{"type", format->value("type", "text")}};
  if (chat["type"] == "json_schema") chat["json_schema"] = *format;
  const Json whole = {{"response_format", std::move(chat)}};
  Fields named(whole);
  read_response_format(named, request);
}

}  // namespace

void post_responses(Service& service, const std::shared_ptr<Exchange>& exchange,
                    std::uint64_t salt) {
  const Json body = parse_json(exchange->request().body, "the body");
  Fields fields(body);
  check_model(fields, service);
  fields.refuse("previous_response_id");
  fields.refuse("conversation");
  fields.refuse("background");
  text::Conversation conversation = read_input(fields);
  conversation.tools = read_tools(fields);
  infer::Request request;
  read_sampling(fields, service, request);
  read_format(fields, request);
  request.salt = salt;
  request.tokens = prompt_ids(service, render_prompt(service, conversation));
  const Index prompt_tokens = std::ssize(request.tokens);
  check_context(prompt_tokens, service, "input");
  const Index left = service.engine().info().context - prompt_tokens;
  const auto most = fields.integer("max_output_tokens", 1, Index{1} << 30);
  request.max_tokens = std::min(most.value_or(left), left);
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
  const bool streams = fields.boolean("stream").value_or(false);
  for (const char* name :
       {"metadata", "store", "service_tier", "user", "include", "truncation", "reasoning",
        "parallel_tool_calls", "prompt_cache_key", "safety_identifier", "stream_options"}) {
    fields.accept(name);
  }
  Json echoed = {{"instructions", body.value("instructions", Json())},
                 {"max_output_tokens", most ? Json(*most) : Json()},
                 {"metadata", body.value("metadata", Json::object())},
                 {"parallel_tool_calls", true},
                 {"temperature", request.sampling.temperature},
                 {"text", body.value("text", Json({{"format", {{"type", "text"}}}}))},
                 {"tool_choice", body.value("tool_choice", Json("auto"))},
                 {"tools", body.value("tools", Json::array())},
                 {"top_p", request.sampling.top_p}};
  auto answer = std::make_unique<ResponsesAnswer>(service, exchange, streams, prompt_tokens,
                                                  std::move(echoed), fields.ignored_names());
  std::vector<infer::Request> requests;
  requests.push_back(std::move(request));
  std::make_shared<Generation>(service, exchange, std::move(answer))->start(std::move(requests));
}

}  // namespace hone::server
