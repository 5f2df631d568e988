// SPDX-License-Identifier: Apache-2.0
#include "hone/text/chat_template/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hone/core/check.h"
#include "hone/text/chat_template/interpreter.h"
#include "hone/text/chat_template/parser.h"

namespace hone::text {
namespace {

using Names = std::vector<std::pair<std::string, Value>>;

// Templates spell special tokens with them, such as '<|' + message.role + '|>'.
constexpr std::array<std::string_view, 8> kRoles = {"system", "developer", "user",    "assistant",
                                                    "tool",   "function",  "ipython", "model"};

Value message_value(const Json& message) {
  const bool has_role =
      message.is_object() && message.contains("role") && message["role"].is_string();
  const std::string role = has_role ? message["role"].get<std::string>() : "";
  const Value value =
      Value::from_json(message, role == "assistant" ? Origin::Assistant : Origin::Data);
  if (std::ranges::find(kRoles, role) == kRoles.end()) return value;
  ValueDict dict = value.dict();
  dict.set(Value("role"), Value(role));
  return Value(std::move(dict));
}

Value messages_value(const Json& messages) {
  ValueList out;
  for (const Json& message : messages) out.push_back(message_value(message));
  return Value(std::move(out));
}

Value formatted_time(std::time_t now, const Arguments& arguments) {
  const bool has_format =
      !arguments.positional.empty() && arguments.positional[0].is(Value::Kind::Text);
  if (!has_format) fail_template("strftime_now() expects a format.");
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 512> text{};
  const std::size_t size =
      std::strftime(text.data(), text.size(), arguments.positional[0].text().c_str(), &parts);
  const std::vector<TextSegment> sources = arguments.positional[0].marked().segments();
  const bool is_own = std::ranges::all_of(sources, &TextSegment::allow_special);
  return Value(
      MarkedText(std::string(text.data(), size), is_own ? Origin::Template : Origin::Data));
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source,
                           std::map<std::string, std::string> special_tokens,
                           std::string_view where)
    : source_(source),
      program_(parse_template(source, where)),
      special_tokens_(std::move(special_tokens)) {}

std::vector<TextSegment> ChatTemplate::render(const Conversation& conversation) const {
  HONE_REQUIRE(conversation.messages.is_array(), "chat template", "The messages are not a list.");
  Names names;
  const auto set = [&names](const std::string& name, Value value) {
    std::erase_if(names, [&](const auto& entry) { return entry.first == name; });
    names.emplace_back(name, std::move(value));
  };
  for (const auto& [name, piece] : special_tokens_) set(name, Value(piece));
  set("documents", Value::none());
  for (const auto& [name, value] : conversation.variables.items()) {
    set(name, Value::from_json(value, Origin::Data));
  }
  set("messages", messages_value(conversation.messages));
  set("tools", Value::from_json(conversation.tools, Origin::Data));
  set("add_generation_prompt", Value(conversation.add_generation_prompt));
  set("strftime_now", Value(ValueFunction{.name = "strftime_now",
                                          .call = [now = conversation.now](const Arguments& a) {
                                            return formatted_time(now, a);
                                          }}));
  return run_template(program_, std::move(names)).segments();
}

std::string joined_text(const std::vector<TextSegment>& segments) {
  std::string out;
  for (const TextSegment& segment : segments) out += segment.text;
  return out;
}

}  // namespace hone::text
