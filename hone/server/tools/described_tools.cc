// SPDX-License-Identifier: Apache-2.0
#include "hone/server/tools/described_tools.h"

#include <utility>

#include "hone/core/check.h"

namespace hone::server {
namespace {

std::string spelled_call(const ToolFormat& format, std::string_view name,
                         std::string_view arguments) {
  return concat(format.begin, format.open, format.head, spelled_name(format, name), format.middle,
                arguments, format.tail, format.close);
}

std::string description_of(const Json& tools, const ToolFormat& format) {
  std::string out = "These functions are available:\n";
  for (const Json& tool : tools) out += concat(tool["function"].dump(), "\n");
  out += concat("To call a function, answer with its name and its arguments in this form:\n",
                spelled_call(format, "NAME", "{\"ARGUMENT\": VALUE}"),
                "\nAnswer in words where no function helps.");
  return out;
}

std::string spelled_calls(const Json& calls, const ToolFormat& format) {
  std::string out;
  for (const Json& call : calls) {
    const Json& function = call["function"];
    const Json& arguments = function["arguments"];
    out += concat(
        out.empty() ? "" : "\n",
        spelled_call(format, function["name"].get<std::string>(),
                     arguments.is_string() ? arguments.get<std::string>() : arguments.dump()));
  }
  return out;
}

}  // namespace

void describe_tools(text::Conversation& conversation, const ToolFormat& format) {
  const Json messages = std::exchange(conversation.messages, Json::array());
  Json& out = conversation.messages;
  const Json tools = std::exchange(conversation.tools, Json());
  if (!tools.is_null()) {
    out.push_back({{"role", "system"}, {"content", description_of(tools, format)}});
  }
  bool is_result = false;  // whether the last message is one of results
  for (const Json& message : messages) {
    const std::string role = message["role"].get<std::string>();
    std::string content = message["content"].get<std::string>();
    const bool was_result = std::exchange(is_result, role == "tool");
    if (role == "tool") {
      content = concat("<tool_response>\n", content, "\n</tool_response>");
      if (was_result) {
        out.back()["content"] = concat(out.back()["content"].get<std::string>(), "\n", content);
      } else {
        out.push_back({{"role", "user"}, {"content", std::move(content)}});
      }
    } else if (role == "system" && out.size() == 1 && !tools.is_null() &&
               &message == &messages[0]) {
      out[0]["content"] = concat(content, "\n\n", out[0]["content"].get<std::string>());
    } else if (message.contains("tool_calls")) {
      content += concat(content.empty() ? "" : "\n", spelled_calls(message["tool_calls"], format));
      out.push_back({{"role", role}, {"content", std::move(content)}});
    } else {
      out.push_back(message);
    }
  }
}

}  // namespace hone::server
