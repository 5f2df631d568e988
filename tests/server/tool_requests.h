// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "tests/server/stories_server.h"

// Requests with tools in the words of each API, and answers without them.
namespace hone::test {

enum class Api { Chat, Messages, Responses };
inline constexpr std::array kApis = {Api::Chat, Api::Messages, Api::Responses};

inline std::string_view route_of(Api api) {
  return api == Api::Chat       ? "/v1/chat/completions"
         : api == Api::Messages ? "/v1/messages"
                                : "/v1/responses";
}

// Where a request has the schema of a tool.
inline std::string_view schema_path(Api api) {
  return api == Api::Chat       ? "tools[0].function.parameters"
         : api == Api::Messages ? "tools[0].input_schema"
                                : "tools[0].parameters";
}

inline Json tool_of(Api api, const std::string& name, const Json& schema, bool is_strict = false) {
  Json tool = {{"name", name}, {"description", "A tool."}};
  tool[api == Api::Messages ? "input_schema" : "parameters"] = schema;
  if (is_strict) tool["strict"] = true;
  if (api == Api::Messages) return tool;
  if (api == Api::Chat) return {{"type", "function"}, {"function", std::move(tool)}};
  tool["type"] = "function";
  return tool;
}

// What shall be called: "auto", "none", "any" or the name of a tool.
inline Json choice_of(Api api, const std::string& choice) {
  const bool is_word = choice == "auto" || choice == "none" || choice == "any";
  if (api == Api::Messages) {
    if (is_word) return {{"type", choice}};
    return {{"type", "tool"}, {"name", choice}};
  }
  if (is_word) return choice == "any" ? "required" : choice;
  if (api == Api::Chat) return {{"type", "function"}, {"function", {{"name", choice}}}};
  return {{"type", "function"}, {"name", choice}};
}

// A request for at most one call.
inline Json request_for(Api api, const Json& tools, const std::string& choice, Index tokens) {
  Json messages = Json::array();
  messages.push_back({{"role", "user"}, {"content", "Hello"}});
  Json body = {{"temperature", 0}, {"tools", tools}, {"tool_choice", choice_of(api, choice)}};
  body[api == Api::Responses ? "input" : "messages"] = std::move(messages);
  body[api == Api::Responses ? "max_output_tokens" : "max_tokens"] = tokens;
  if (api != Api::Messages) body["parallel_tool_calls"] = false;
  const bool calls = choice != "none" && choice != "auto";
  if (api == Api::Messages && calls) body["tool_choice"]["disable_parallel_tool_use"] = true;
  return body;
}

struct ToolCall {
  std::string name, arguments, id;
};

// An answer of any API.
struct Answered {
  std::vector<ToolCall> calls{};
  std::string text{}, reasoning{};
  std::string finish{};  // "calls", "stop" or "length"
  Index tokens = 0;

  // Everything but the ids of calls, which are new in each answer.
  std::string shown() const {
    std::string out = concat(finish, " [", reasoning, "] ", text);
    for (const ToolCall& call : calls) out += concat(" ", call.name, "(", call.arguments, ")");
    return out;
  }
};

inline std::string common_finish(const std::string& finish) {
  static const std::map<std::string, std::string> names = {
      {"tool_calls", "calls"},  {"tool_use", "calls"}, {"end_turn", "stop"},
      {"max_tokens", "length"}, {"completed", "stop"}, {"incomplete", "length"}};
  const auto found = names.find(finish);
  return found == names.end() ? finish : found->second;
}

// Clients of this API see an object, and an empty one if the arguments are cut.
inline std::string as_input(const std::string& arguments) {
  const Json input = Json::parse(arguments, nullptr, false);
  return input.is_object() ? input.dump() : "{}";
}

inline Answered answer_of_chat(const Json& json) {
  const Json& choice = json["choices"][0];
  const Json& message = choice["message"];
  Answered out{.text = message["content"].is_null() ? "" : message["content"].get<std::string>(),
               .reasoning = message.value("reasoning_content", ""),
               .finish = common_finish(choice["finish_reason"].get<std::string>()),
               .tokens = json["usage"]["completion_tokens"].get<Index>()};
  if (!message.contains("tool_calls")) return out;
  for (const Json& call : message["tool_calls"]) {
    EXPECT_EQ(call["type"], "function");
    out.calls.push_back({call["function"]["name"].get<std::string>(),
                         call["function"]["arguments"].get<std::string>(),
                         call["id"].get<std::string>()});
  }
  return out;
}

inline Answered answer_of_messages(const Json& json) {
  Answered out{.finish = common_finish(json["stop_reason"].get<std::string>()),
               .tokens = json["usage"]["output_tokens"].get<Index>()};
  for (const Json& block : json["content"]) {
    if (block["type"] == "text") out.text += block["text"].get<std::string>();
    if (block["type"] == "thinking") out.reasoning += block["thinking"].get<std::string>();
    if (block["type"] != "tool_use") continue;
    out.calls.push_back(
        {block["name"].get<std::string>(), block["input"].dump(), block["id"].get<std::string>()});
  }
  return out;
}

inline Answered answer_of_responses(const Json& json) {
  Answered out{.finish = common_finish(json["status"].get<std::string>()),
               .tokens = json["usage"]["output_tokens"].get<Index>()};
  for (const Json& item : json["output"]) {
    if (item["type"] == "function_call") {
      out.calls.push_back({item["name"].get<std::string>(), item["arguments"].get<std::string>(),
                           item["call_id"].get<std::string>()});
      continue;
    }
    std::string& text = item["type"] == "reasoning" ? out.reasoning : out.text;
    for (const Json& part : item["content"]) text += part["text"].get<std::string>();
  }
  if (!out.calls.empty() && out.finish == "stop") out.finish = "calls";
  return out;
}

inline Answered whole_answer(Api api, const Json& json) {
  return api == Api::Chat       ? answer_of_chat(json)
         : api == Api::Messages ? answer_of_messages(json)
                                : answer_of_responses(json);
}

inline Answered stream_of_chat(const std::string& body) {
  Answered out;
  for (const Json& piece : pieces_of(body)) {
    if (piece["choices"].empty()) continue;
    const Json& choice = piece["choices"][0];
    const Json& delta = choice["delta"];
    if (!choice["finish_reason"].is_null()) {
      out.finish = common_finish(choice["finish_reason"].get<std::string>());
    }
    out.text += delta.value("content", "");
    out.reasoning += delta.value("reasoning_content", "");
    if (!delta.contains("tool_calls")) continue;
    for (const Json& call : delta["tool_calls"]) {
      const auto index = call["index"].get<std::size_t>();
      const Json& function = call["function"];
      if (call.contains("id")) {
        EXPECT_EQ(index, out.calls.size());
        out.calls.push_back(
            {function["name"].get<std::string>(), "", call["id"].get<std::string>()});
      }
      EXPECT_LT(index, out.calls.size());
      out.calls.at(index).arguments += function["arguments"].get<std::string>();
    }
  }
  return out;
}

inline Answered stream_of_messages(const std::string& body) {
  Answered out;
  std::map<Index, std::size_t> call_of;  // by the index of the block
  for (const Json& start : events_of(body, "content_block_start")) {
    const Json& block = start["content_block"];
    if (block["type"] != "tool_use") continue;
    EXPECT_EQ(block["input"], Json::object());
    call_of[start["index"].get<Index>()] = out.calls.size();
    out.calls.push_back({block["name"].get<std::string>(), "", block["id"].get<std::string>()});
  }
  for (const Json& one : events_of(body, "content_block_delta")) {
    const Json& delta = one["delta"];
    if (delta["type"] == "text_delta") out.text += delta["text"].get<std::string>();
    if (delta["type"] == "thinking_delta") out.reasoning += delta["thinking"].get<std::string>();
    if (delta["type"] != "input_json_delta") continue;
    const std::size_t call = call_of.at(one["index"].get<Index>());
    out.calls.at(call).arguments += delta["partial_json"].get<std::string>();
  }
  EXPECT_EQ(events_of(body, "content_block_start").size(),
            events_of(body, "content_block_stop").size());
  for (ToolCall& call : out.calls) call.arguments = as_input(call.arguments);
  const Json last = events_of(body, "message_delta").at(0);
  out.finish = common_finish(last["delta"]["stop_reason"].get<std::string>());
  return out;
}

// The last event has the whole response, which must agree with the deltas.
inline Answered stream_of_responses(const std::string& body) {
  std::vector<Json> ends = events_of(body, "response.completed");
  if (ends.empty()) ends = events_of(body, "response.incomplete");
  const Json response = ends.at(0)["response"];
  std::map<std::pair<std::string, Index>, std::string> deltas;
  for (const char* kind : {"output_text", "reasoning_text", "function_call_arguments"}) {
    for (const Json& one : events_of(body, concat("response.", kind, ".delta"))) {
      deltas[{kind, one["output_index"].get<Index>()}] += one["delta"].get<std::string>();
    }
    for (const Json& one : events_of(body, concat("response.", kind, ".done"))) {
      const std::string& joined = deltas[{kind, one["output_index"].get<Index>()}];
      EXPECT_EQ(one.contains("text") ? one["text"] : one["arguments"], joined);
    }
  }
  const std::vector<Json> added = events_of(body, "response.output_item.added");
  EXPECT_EQ(added.size(), response["output"].size());
  Answered out = answer_of_responses(response);
  std::string joined, arguments;
  for (const auto& [place, text] : deltas) {
    (place.first == "function_call_arguments" ? arguments : joined) += text;
  }
  std::string whole;
  for (const ToolCall& call : out.calls) whole += call.arguments;
  EXPECT_EQ(arguments, whole);
  EXPECT_EQ(joined, out.text + out.reasoning);
  return out;
}

inline Answered stream_answer(Api api, const std::string& body) {
  return api == Api::Chat       ? stream_of_chat(body)
         : api == Api::Messages ? stream_of_messages(body)
                                : stream_of_responses(body);
}

}  // namespace hone::test
