// SPDX-License-Identifier: Apache-2.0
#include "hone/server/tools/tool_format.h"

#include <algorithm>
#include <array>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/text/turn_tokens.h"

namespace hone::server {
namespace {

using Kind = infer::OutputPart::Kind;

// In the order in which templates are searched, but for the first one, which is the default.
constexpr std::array<ToolFormat, 5> kFormats = {{{.name = "hermes",
                                                  .mark = "<tool_call>",
                                                  .begin = "<tool_call>",
                                                  .head = "\n{\"name\": ",
                                                  .middle = ", \"arguments\": ",
                                                  .tail = "}\n</tool_call>",
                                                  .between = "\n<tool_call>",
                                                  .repeats = true},
                                                 {.name = "mistral, tokens",
                                                  .mark = "[ARGS]",
                                                  .begin = "[TOOL_CALLS]",
                                                  .middle = "[ARGS]",
                                                  .between = "[TOOL_CALLS]",
                                                  .repeats = true},
                                                 {.name = "mistral",
                                                  .mark = "[TOOL_CALLS]",
                                                  .begin = "[TOOL_CALLS]",
                                                  .has_space = true,
                                                  .open = "[",
                                                  .head = "{\"name\": ",
                                                  .middle = ", \"arguments\": ",
                                                  .tail = "}",
                                                  .between = ", ",
                                                  .close = "]",
                                                  .repeats = true},
                                                 {.name = "llama 3",
                                                  .mark = "<|start_header_id|>",
                                                  .begin = "{\"name\": ",
                                                  .only_at_start = true,
                                                  .middle = ", \"parameters\": ",
                                                  .tail = "}"},
                                                 {.name = "gemma",
                                                  .mark = "<start_of_turn>",
                                                  .begin = "{\"name\": ",
                                                  .only_at_start = true,
                                                  .middle = ", \"parameters\": ",
                                                  .tail = "}"}}};

void append(std::vector<infer::OutputPart>& parts, std::vector<infer::OutputPart> more) {
  for (infer::OutputPart& part : more) {
    const bool joins = !parts.empty() && part.kind == Kind::Text && parts.back().kind == Kind::Text;
    if (joins) {
      parts.back().text += part.text;
    } else {
      parts.push_back(std::move(part));
    }
  }
}

}  // namespace

const ToolFormat& find_tool_format(std::string_view chat_template) {
  const auto found = std::ranges::find_if(kFormats, [&](const ToolFormat& format) {
    return chat_template.find(format.mark) != std::string_view::npos;
  });
  return found == kFormats.end() ? kFormats[0] : *found;
}

bool shows_tools(std::string_view chat_template) {
  return chat_template.find("tools") != std::string_view::npos;
}

std::string spelled_name(const ToolFormat& format, std::string_view name) {
  return format.head.empty() && !format.only_at_start ? std::string(name)
                                                      : Json(std::string(name)).dump();
}

std::vector<infer::OutputPart> text_parts(std::string_view text, const text::Tokenizer& tokenizer) {
  std::vector<infer::OutputPart> parts;
  std::size_t begin = 0;
  while (begin < text.size()) {
    // Control tokens of calls are in brackets.
    const std::size_t open = text.find_first_of("[<", begin);
    const std::size_t close = open == text.npos ? text.npos : text.find_first_of("]>", open);
    if (close == text.npos) break;
    const std::string_view spelled = text.substr(open, close + 1 - open);
    if (const auto id = text::control_id(tokenizer, spelled)) {
      if (open > begin) append(parts, {{.text = std::string(text.substr(begin, open - begin))}});
      parts.push_back({.kind = Kind::Token, .text = std::string(spelled), .token = *id});
    } else {
      append(parts, {{.text = std::string(text.substr(begin, close + 1 - begin))}});
    }
    begin = close + 1;
  }
  if (begin < text.size()) append(parts, {{.text = std::string(text.substr(begin))}});
  return parts;
}

infer::OutputFormat call_format(const ToolFormat& format, const std::vector<Tool>& tools,
                                bool repeats, const text::Tokenizer& tokenizer) {
  infer::OutputFormat out;
  if (format.has_space) out.before.push_back({.kind = Kind::Space});
  append(out.before, text_parts(format.open, tokenizer));
  for (const Tool& tool : tools) {
    std::vector<infer::OutputPart> call;
    append(call, text_parts(format.head, tokenizer));
    append(call, {{.text = spelled_name(format, tool.name)}});
    append(call, text_parts(format.middle, tokenizer));
    call.push_back({.kind = Kind::Value,
                    .text = tool.parameters,
                    .is_strict = tool.is_strict,
                    .label = tool.label});
    append(call, text_parts(format.tail, tokenizer));
    out.choices.push_back(std::move(call));
  }
  out.between = text_parts(format.between, tokenizer);
  out.after = text_parts(format.close, tokenizer);
  out.repeats = repeats && format.repeats;
  return out;
}

}  // namespace hone::server
