// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "hone/server/tools/tool_format.h"

namespace hone::server {

// What the answers of a model look like, as far as its chat template tells.
struct ChatStyle {
  const ToolFormat* format = nullptr;
  bool shows_tools = false;                // whether the template takes tools
  std::string think_begin{}, think_end{};  // around reasoning; empty without it
};

inline ChatStyle find_chat_style(std::string_view chat_template) {
  ChatStyle out{.format = &find_tool_format(chat_template),
                .shows_tools = shows_tools(chat_template)};
  if (chat_template.find("</think>") != std::string_view::npos) {
    out.think_begin = "<think>";
    out.think_end = "</think>";
  }
  return out;
}

}  // namespace hone::server
