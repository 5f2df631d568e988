// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/messages.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/request_fields.h"
#include "hone/text/turn_tokens.h"

namespace hone::server {
namespace {

constexpr std::size_t kMostMessages = 4096;

// The text of a message's content: a string, null, or an array of text parts.
Json content_of(Fields& message) {
  const Json* content = message.find("content");
  if (content == nullptr) return "";
  if (content->is_string()) return *content;
  if (!content->is_array()) message.fail("content", "a string or an array of text parts");
  std::string joined;
  for (std::size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], message.path_of(concat("content[", i, "]")));
    const std::string type = part.required_string("type");
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      throw ApiError(
          400, concat(part.path_of("type"), ": This model takes text only, got \"", type, "\"."),
          part.path_of("type"), "unsupported_content");
    }
    const std::string text = part.required_string(type == "refusal" ? "refusal" : "text");
    joined += concat(i > 0 ? "\n" : "", text);
  }
  return joined;
}

// Templates print the arguments as an object; clients send them as text.
Json tool_calls_of(Fields& message) {
  Json calls = *message.find("tool_calls");
  if (!calls.is_array()) message.fail("tool_calls", "an array");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Json& call = calls[i];
    Fields fields(call, message.path_of(concat("tool_calls[", i, "]")));
    if (!fields.has("function")) fields.fail("function", "an object");
    Fields function(call["function"], fields.path_of("function"));
    function.required_string("name");
    Json& arguments = call["function"]["arguments"];
    if (arguments.is_null()) arguments = Json::object();
    if (!arguments.is_string()) continue;
    try {
      Json parsed = parse_json(arguments.get_ref<const std::string&>(), "arguments");
      if (parsed.is_object()) arguments = std::move(parsed);
    } catch (const Error&) {  // stays what the model wrote
    }
  }
  return calls;
}

Json read_message(const Json& json, const std::string& path) {
  Fields message(json, path);
  std::string role = message.required_string("role");
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
    message.fail("role", "system, developer, user, assistant or tool");
  }
  if (role != "assistant" && !message.has("content")) {
    message.fail("content", "a string or an array of text parts");
  }
  Json out = {{"role", role}, {"content", content_of(message)}};
  for (const char* name : {"name", "tool_call_id", "reasoning_content"}) {
    if (auto text = message.string(name)) out[name] = std::move(*text);
  }
  if (message.has("tool_calls")) out["tool_calls"] = tool_calls_of(message);
  return out;
}

// The system messages in front of the first user message.
Json without_system(const Json& messages) {
  std::string system;
  Json out = Json::array();
  for (const Json& message : messages) {
    if (message["role"] == "system") {
      system += concat(message["content"].get<std::string>(), "\n\n");
      continue;
    }
    out.push_back(message);
    if (message["role"] != "user" || system.empty()) continue;
    out.back()["content"] = system + message["content"].get<std::string>();
    system.clear();
  }
  return out;
}

bool has_role(const Json& messages, std::string_view role) {
  return std::ranges::any_of(messages,
                             [&](const Json& message) { return message["role"] == role; });
}

// The prompt up to the end of the last answer, which the template may close.
void cut_behind(std::vector<text::TextSegment>& segments, const std::string& answer) {
  const std::string text = text::joined_text(segments);
  std::size_t kept = answer.empty() ? std::string::npos : text.rfind(answer);
  if (kept == std::string::npos) return;
  kept += answer.size();
  for (text::TextSegment& segment : segments) {
    const std::size_t own = std::min(kept, segment.text.size());
    segment.text.resize(own);
    kept -= own;
  }
}

}  // namespace

Json read_messages(Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMostMessages) {
    fields.fail("messages", concat("an array of 1 to ", kMostMessages, " messages"));
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    out.push_back(read_message((*messages)[i], concat("messages[", i, "]")));
  }
  return out;
}

std::vector<text::TextSegment> render_prompt(const TextService& service,
                                             const text::Conversation& conversation) {
  const text::ChatTemplate* chat = service.model().chat_template.get();
  if (chat == nullptr) {
    throw ApiError(400, "The model has no chat template. Use /v1/completions.", "messages",
                   "no_chat_template");
  }
  text::Conversation used = conversation;
  const Json& last = used.messages.back();
  const bool continues = last["role"] == "assistant" && !last.contains("tool_calls");
  if (continues) used.add_generation_prompt = false;
  const auto render = [&] {
    std::vector<text::TextSegment> segments = chat->render(used);
    if (continues) cut_behind(segments, last["content"].get<std::string>());
    return segments;
  };
  try {
    try {
      return render();
    } catch (const Error&) {
      if (!has_role(used.messages, "system") || !has_role(used.messages, "user")) throw;
      used.messages = without_system(used.messages);
      return chat->render(used);
    }
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::InvalidArgument) throw;
    throw ApiError(400, error.what(), "messages", "template_error");
  }
}

std::vector<infer::TokenId> prompt_ids(const TextService& service,
                                       const std::vector<text::TextSegment>& segments) {
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  Index bytes = 0;
  for (const text::TextSegment& segment : segments) bytes += std::ssize(segment.text);
  check_bytes(bytes, service, "messages");
  return text::with_bos(tokenizer, tokenizer.encode(segments));
}

}  // namespace hone::server
