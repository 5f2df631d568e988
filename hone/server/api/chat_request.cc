// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/chat_request.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/messages.h"
#include "hone/server/api/request_fields.h"
#include "hone/server/tools/described_tools.h"

namespace hone::server {
namespace {

using infer::OutputFormat;
using infer::OutputPart;
using Kind = infer::OutputPart::Kind;

constexpr std::size_t kMostTools = 128, kLongestName = 128, kMostIgnored = 1024;

bool ends_with_tag(const std::vector<text::TextSegment>& segments, std::string_view tag) {
  std::string text = text::joined_text(segments);
  text.erase(text.find_last_not_of(" \n\t\r") + 1);
  return !tag.empty() && text.ends_with(tag);
}

// Free text that ends with `text`, which may be a control token.
OutputPart free_until(std::string_view text, const text::Tokenizer& tokenizer) {
  std::vector<OutputPart> parts = text_parts(text, tokenizer);
  OutputPart part = std::move(parts.front());
  if (part.kind == Kind::Token) part.text.clear();
  part.kind = Kind::Free;
  return part;
}

void add_parts(std::vector<OutputPart>& parts, const std::vector<OutputPart>& more) {
  parts.insert(parts.end(), more.begin(), more.end());
}

std::vector<Tool> callable_tools(const ChatRequest& chat) {
  std::vector<Tool> out = chat.tools;
  if (chat.allowed.empty()) return out;
  std::erase_if(out, [&](const Tool& tool) {
    return std::ranges::find(chat.allowed, tool.name) == chat.allowed.end();
  });
  return out;
}

// The format of an answer that may or must call tools, or satisfies a schema.
class FormatPlanner {
 public:
  FormatPlanner(const ChatRequest& chat, const ChatStyle& style, const text::Tokenizer& tokenizer,
                bool starts_thinking)
      : chat_(chat), style_(style), tokenizer_(tokenizer), starts_thinking_(starts_thinking) {}

  OutputFormat plan() {
    OutputFormat out;
    if (chat_.tools.empty() || chat_.choice == ChatRequest::ToolChoice::None) {
      out.choices = {{schema_part()}};
    } else {
      out = plan_calls();
    }
    if (!starts_thinking_) return out;
    const bool is_free = chat_.schema.empty() && chat_.choice == ChatRequest::ToolChoice::Auto;
    OutputPart thinking = free_until(style_.think_end, tokenizer_);
    thinking.may_end = is_free;
    std::vector<OutputPart> before = {std::move(thinking)};
    if (!is_free) before.push_back({.kind = Kind::Space});
    add_parts(before, out.before);
    out.before = std::move(before);
    return out;
  }

 private:
  OutputPart schema_part() const {
    return {.kind = Kind::Value, .text = chat_.schema, .label = chat_.schema_label};
  }

  OutputFormat plan_calls() const {
    const ToolFormat& format = *style_.format;
    const bool is_required = chat_.choice == ChatRequest::ToolChoice::Required;
    OutputFormat out = call_format(format, callable_tools(chat_), chat_.parallel_calls, tokenizer_);
    if (is_required || !chat_.schema.empty()) {
      std::vector<OutputPart> begin = text_parts(format.begin, tokenizer_);
      add_parts(begin, out.before);
      if (is_required) {
        out.before = std::move(begin);
        return out;
      }
      for (std::vector<OutputPart>& choice : out.choices) {
        choice.insert(choice.begin(), begin.begin(), begin.end());
        add_parts(choice, out.after);
      }
      out.before.clear();
      out.after.clear();
      out.repeats = false;
      out.choices.push_back({schema_part()});
      return out;
    }
    OutputPart until = free_until(format.begin, tokenizer_);
    until.may_end = true;
    until.only_at_start = format.only_at_start;
    out.before.insert(out.before.begin(), std::move(until));
    return out;
  }

  const ChatRequest& chat_;
  const ChatStyle& style_;
  const text::Tokenizer& tokenizer_;
  const bool starts_thinking_;
};

// Control tokens that the splitter must see.
void show_tokens(const OutputFormat& format, const ChatStyle& style,
                 const text::Tokenizer& tokenizer, std::vector<infer::TokenId>& visible) {
  const auto show = [&](const std::vector<OutputPart>& parts) {
    for (const OutputPart& part : parts) {
      if (part.token >= 0) visible.push_back(part.token);
    }
  };
  show(format.before);
  show(format.between);
  show(format.after);
  for (const std::vector<OutputPart>& choice : format.choices) show(choice);
  for (const std::string& tag : {style.think_begin, style.think_end}) {
    show(text_parts(tag, tokenizer));
  }
  std::ranges::sort(visible);
  visible.erase(std::unique(visible.begin(), visible.end()), visible.end());
}

// `param` is the field with the schema.
void set_grammar(TextService& service, const OutputFormat& format, const std::string& param,
                 infer::Request& request, std::string* ignored) {
  FormatCache::Entry entry;
  try {
    entry = service.formats().compile(format);
  } catch (const Error&) {
    const ApiError told = to_api_error(std::current_exception());
    if (told.status() != 400) throw;
    throw ApiError(400, told.what(), param, "invalid_schema");
  }
  request.grammar = entry.grammar;
  if (ignored == nullptr) return;
  for (const std::string& pointer : entry.ignored) {
    const bool is_plain = std::ranges::all_of(pointer, [](char c) { return c > ' ' && c < 127; });
    if (!is_plain || ignored->size() + pointer.size() > kMostIgnored) continue;
    *ignored += concat(ignored->empty() ? "" : ", ", pointer);
  }
}

// The tools of the chat API, and which of them are to be called.
void read_chat_tools(Fields& fields, ChatRequest& chat) {
  read_tools(fields, [&chat](Fields& tool) {
    if (tool.required_string("type") != "function") tool.fail("type", "function");
    const Json* described = tool.find("function");
    if (described == nullptr) tool.fail("function", "an object");
    Fields function(*described, tool.path_of("function"));
    add_tool(chat, function, "parameters", function.boolean("strict").value_or(false));
  });
  const auto name_of = [](Fields& choice) {
    const Json* function = choice.find("function");
    if (function == nullptr) choice.fail("function", "an object with the name of a tool");
    return Fields(*function, choice.path_of("function")).required_string("name");
  };
  const auto allowed_of = [](Fields& choice) {
    const Json* allowed = choice.find("allowed_tools");
    if (allowed == nullptr) choice.fail("allowed_tools", "an object");
    return allowed;
  };
  read_tool_choice(fields, chat, {name_of, allowed_of, "tool_choice.allowed_tools"});
}

void set_tool_mode(ChatRequest& chat, Fields& fields, std::string_view name,
                   const std::string& mode) {
  if (mode == "none") {
    chat.choice = ChatRequest::ToolChoice::None;
  } else if (mode == "required") {
    chat.choice = ChatRequest::ToolChoice::Required;
  } else if (mode != "auto") {
    fields.fail(name, name == "mode" ? "auto or required" : "none, auto, required or an object");
  }
}

}  // namespace

void read_tools(Fields& fields, const std::function<void(Fields& tool)>& read) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) fields.fail("tools", "an array");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fields.path_of(concat("tools[", i, "]")));
    read(tool);
  }
}

void ignore_tool(ChatRequest& chat, const Fields& tool) {
  if (chat.ignored.size() < kMostIgnored) chat.ignored = join_names(chat.ignored, tool.path());
}

void read_tool_choice(Fields& fields, ChatRequest& chat, const ToolChoiceShape& shape) {
  constexpr std::string_view kChoice = "tool_choice";
  chat.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = fields.find(kChoice);
  if (choice == nullptr) return;
  if (!choice->is_object()) {
    return set_tool_mode(chat, fields, kChoice,
                         choice->is_string() ? choice->get<std::string>() : "");
  }
  Fields named(*choice, std::string(kChoice));
  if (named.string("type") != "allowed_tools") {
    chat.choice = ChatRequest::ToolChoice::Required;
    return allow_tool(chat, shape.name_of(named), kChoice);
  }
  Fields several(*shape.allowed_of(named), shape.allowed_path);
  set_tool_mode(chat, several, "mode", several.required_string("mode"));
  read_tools(several, [&](Fields& tool) { allow_tool(chat, shape.name_of(tool), kChoice); });
  if (chat.allowed.empty()) several.fail("tools", "at least one tool");
}

ChatRequest read_chat(Fields& fields) {
  ChatRequest chat;
  text::Conversation& conversation = chat.conversation;
  conversation.now = std::time(nullptr);
  conversation.messages = read_messages(fields);
  read_chat_tools(fields, chat);
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) fields.fail("chat_template_kwargs", "an object");
    conversation.variables = *variables;
  }
  if (const auto effort = fields.string("reasoning_effort")) {
    conversation.variables["reasoning_effort"] = *effort;
  }
  return chat;
}

void add_tool(ChatRequest& chat, Fields& function, const std::string& schema_name, bool is_strict) {
  const std::string name = function.required_string("name");
  const bool is_plain = std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
  if (name.empty() || name.size() > kLongestName || !is_plain) {
    function.fail("name", concat("1 to ", kLongestName, " bytes without control characters"));
  }
  if (chat.tools.size() >= kMostTools) {
    throw ApiError(400, concat("tools: expected at most ", kMostTools, " tools"), "tools");
  }
  if (std::ranges::any_of(chat.tools, [&](const Tool& tool) { return tool.name == name; })) {
    function.fail("name", "a name that no other tool has");
  }
  Json shown = {{"name", name}, {"description", function.string("description").value_or("")}};
  const Json* parameters = function.find(schema_name);
  if (parameters != nullptr && !parameters->is_object())
    function.fail(schema_name, "a JSON schema");
  shown["parameters"] = parameters != nullptr && !parameters->empty()
                            ? *parameters
                            : Json({{"type", "object"}, {"properties", Json::object()}});
  chat.tools.push_back({.name = name,
                        .parameters = shown["parameters"].dump(),
                        .is_strict = is_strict,
                        .label = function.path_of(schema_name)});
  chat.functions.push_back(std::move(shown));
}

void allow_tool(ChatRequest& chat, std::string name, std::string_view param) {
  if (std::ranges::none_of(chat.tools, [&](const Tool& tool) { return tool.name == name; })) {
    throw ApiError(400, concat(param, ": There is no tool ", quote_name(name), "."),
                   std::string(param));
  }
  chat.allowed.push_back(std::move(name));
}

std::vector<text::TextSegment> chat_prompt(const TextService& service, const ChatRequest& chat) {
  text::Conversation conversation = chat.conversation;
  if (!chat.tools.empty() && chat.choice != ChatRequest::ToolChoice::None) {
    conversation.tools = Json::array();
    for (const Json& function : chat.functions) {
      conversation.tools.push_back({{"type", "function"}, {"function", function}});
    }
  }
  const ChatStyle& style = service.style();
  if (!style.shows_tools) describe_tools(conversation, *style.format);
  return render_prompt(service, conversation);
}

ChatPlan plan_chat(TextService& service, ChatRequest chat, infer::Request& request,
                   const std::string& param) {
  const ChatStyle& style = service.style();
  if (chat.choice == ChatRequest::ToolChoice::Required && chat.tools.empty()) {
    throw ApiError(400, "tool_choice: There are no tools to choose from.", "tool_choice");
  }
  const bool calls = !chat.tools.empty() && chat.choice != ChatRequest::ToolChoice::None;
  ChatPlan plan{.syntax = {.think_begin = style.think_begin, .think_end = style.think_end},
                .ignored = chat.ignored};
  if (calls) {
    plan.syntax.format = style.format;
    for (const Tool& tool : callable_tools(chat)) plan.syntax.tools.push_back(tool.name);
  }
  const std::vector<text::TextSegment> prompt = chat_prompt(service, chat);
  request.tokens = prompt_ids(service, prompt);
  check_context(std::ssize(request.tokens), service, param);
  plan.syntax.starts_thinking = ends_with_tag(prompt, style.think_begin);
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  OutputFormat format;
  if (calls || !chat.schema.empty()) {
    format = FormatPlanner(chat, style, tokenizer, plan.syntax.starts_thinking).plan();
    const std::string& schema_field = chat.schema_label;
    set_grammar(service, format, calls ? "tools" : schema_field.substr(0, schema_field.find('.')),
                request, &plan.ignored);
  }
  show_tokens(format, style, tokenizer, request.visible_ids);
  return plan;
}

void set_schema(TextService& service, const std::string& schema, const std::string& label,
                infer::Request& request) {
  if (schema.empty()) return;
  OutputFormat format;
  format.choices = {{{.kind = Kind::Value, .text = schema, .label = label}}};
  set_grammar(service, format, label.substr(0, label.find('.')), request, nullptr);
}

void set_length(const TextService& service, std::optional<Index> asked, infer::Request& request) {
  const Index left = service.engine().info().context - std::ssize(request.tokens);
  request.max_tokens = std::min(asked.value_or(left), left);
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
}

}  // namespace hone::server
