// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/anthropic_answer.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/error.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/token_text.h"

namespace hone::server {
namespace {

// An item as a block of content; as it begins, without its text.
Json block_of(const OutputItem& item, bool is_whole) {
  const std::string text = is_whole ? item.text : std::string();
  if (item.kind == OutputItem::Kind::Content) return {{"type", "text"}, {"text", text}};
  if (item.kind == OutputItem::Kind::Reasoning) {
    return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
  }
  Json input = Json::object();
  try {
    if (!text.empty()) input = parse_json(text, "arguments");
  } catch (const Error&) {  // cut by the length of the answer
  }
  return {{"type", "tool_use"}, {"id", item.id}, {"name", item.name}, {"input", std::move(input)}};
}

}  // namespace

AnthropicAnswer::AnthropicAnswer(TextService& service, std::shared_ptr<Exchange> exchange,
                                 AnthropicOptions options)
    : service_(service),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      items_(options_.syntax, exchange_->request().id) {}

Json AnthropicAnswer::usage() const {
  return {{"input_tokens", options_.prompt_tokens - timings_.cached_tokens},
          {"cache_read_input_tokens", timings_.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", timings_.generated_tokens}};
}

Json AnthropicAnswer::message() const {
  Json content = Json::array();
  if (!options_.streams) {
    for (const OutputItem& item : items_.items()) content.push_back(block_of(item, true));
  }
  return {{"id", concat("msg_", exchange_->request().id)},
          {"type", "message"},
          {"role", "assistant"},
          {"model", service_.model().id},
          {"content", std::move(content)},
          {"stop_reason", stop_reason_},
          {"stop_sequence", stop_sequence_},
          {"usage", usage()}};
}

bool AnthropicAnswer::send(std::string_view event, Json data) {
  Json named = {{"type", event}};
  named.update(data);
  goes_on_ = exchange_->write(concat("event: ", event, "\ndata: ", json_text(named), "\n\n"));
  return goes_on_;
}

bool AnthropicAnswer::begin() {
  if (std::exchange(has_begun_, true)) return true;
  begin_events(*exchange_, options_.ignored);
  return send("message_start", {{"message", message()}});
}

void AnthropicAnswer::on_begin(std::size_t index, const OutputItem& item) {
  begin();
  send("content_block_start", {{"index", index}, {"content_block", block_of(item, false)}});
}

void AnthropicAnswer::on_text(std::size_t index, const OutputItem& item, std::string_view text) {
  Json delta;
  switch (item.kind) {
    case OutputItem::Kind::Content:
      delta = {{"type", "text_delta"}, {"text", text}};
      break;
    case OutputItem::Kind::Reasoning:
      delta = {{"type", "thinking_delta"}, {"thinking", text}};
      break;
    case OutputItem::Kind::Call:
      delta = {{"type", "input_json_delta"}, {"partial_json", text}};
      break;
  }
  send("content_block_delta", {{"index", index}, {"delta", std::move(delta)}});
}

void AnthropicAnswer::on_end(std::size_t index, const OutputItem& /*item*/) {
  send("content_block_stop", {{"index", index}});
}

void AnthropicAnswer::note_end(const infer::Event& event) {
  timings_ = event.timings;
  const bool stopped = *event.finished == infer::FinishReason::Stop;
  stop_reason_ = !stopped ? "max_tokens" : items_.has_whole_calls() ? "tool_use" : "end_turn";
  if (!event.cause) return;
  std::string stop;
  if (event.cause->kind == infer::StopCause::Kind::String) {
    stop = options_.stops[static_cast<std::size_t>(event.cause->string)];
  } else if (event.cause->kind == infer::StopCause::Kind::Token) {
    stop = token_text(service_.engine().tokenizer(), event.cause->token);
  }
  if (stop.empty() || std::ranges::find(options_.stops, stop) == options_.stops.end()) return;
  stop_reason_ = "stop_sequence";
  stop_sequence_ = stop;
}

bool AnthropicAnswer::on_event(std::size_t /*choice*/, const infer::Event& event) {
  OutputListener* listener = options_.streams ? this : nullptr;
  if (options_.streams) begin();
  items_.push(event.text, listener);
  if (event.finished) {
    items_.finish(listener);
    note_end(event);
  }
  return goes_on_ && !exchange_->is_closed();
}

void AnthropicAnswer::on_end() {
  if (!options_.streams) return respond_json(*exchange_, message(), options_.ignored);
  send("message_delta",
       {{"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
        {"usage", usage()}});
  send("message_stop", Json::object());
  exchange_->end_stream();
}

void AnthropicAnswer::on_error(const ApiError& error) {
  if (!has_begun_) return exchange_->respond(error.response());
  send("error", error.body());
  exchange_->end_stream(false);
}

void AnthropicAnswer::on_silence() {
  if (!options_.streams) return;
  begin();
  send("ping", Json::object());
}

}  // namespace hone::server
