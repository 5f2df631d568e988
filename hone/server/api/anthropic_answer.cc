// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/anthropic_answer.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/token_text.h"

namespace hone::server {
AnthropicAnswer::AnthropicAnswer(Service& service, std::shared_ptr<Exchange> exchange, bool streams,
                                 Index prompt_tokens, std::vector<std::string> stops,
                                 std::string ignored)
    : service_(service),
      exchange_(std::move(exchange)),
      streams_(streams),
      prompt_tokens_(prompt_tokens),
      stops_(std::move(stops)),
      ignored_(std::move(ignored)) {}

Json AnthropicAnswer::usage() const {
  return {{"input_tokens", prompt_tokens_ - timings_.cached_tokens},
          {"cache_read_input_tokens", timings_.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", timings_.generated_tokens}};
}

Json AnthropicAnswer::message() const {
  Json content = Json::array();
  if (!streams_) content.push_back({{"type", "text"}, {"text", text_}});
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
  return exchange_->write(concat("event: ", event, "\ndata: ", json_text(named), "\n\n"));
}

bool AnthropicAnswer::begin() {
  if (std::exchange(has_begun_, true)) return true;
  begin_events(*exchange_, ignored_);
  send("message_start", {{"message", message()}});
  return send("content_block_start",
              {{"index", 0}, {"content_block", {{"type", "text"}, {"text", ""}}}});
}

void AnthropicAnswer::note_end(const infer::Event& event) {
  timings_ = event.timings;
  stop_reason_ = *event.finished == infer::FinishReason::Stop ? "end_turn" : "max_tokens";
  if (!event.cause) return;
  std::string stop;
  if (event.cause->kind == infer::StopCause::Kind::String) {
    stop = stops_[static_cast<std::size_t>(event.cause->string)];
  } else if (event.cause->kind == infer::StopCause::Kind::Token) {
    stop = token_text(service_.engine().tokenizer(), event.cause->token);
  }
  if (stop.empty() || std::ranges::find(stops_, stop) == stops_.end()) return;
  stop_reason_ = "stop_sequence";
  stop_sequence_ = stop;
}

bool AnthropicAnswer::on_event(std::size_t /*choice*/, const infer::Event& event) {
  if (event.finished) note_end(event);
  text_ += event.text;
  if (!streams_) return !exchange_->is_closed();
  bool goes_on = begin();
  if (!event.text.empty()) {
    goes_on = send("content_block_delta",
                   {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", event.text}}}});
  }
  return goes_on;
}

void AnthropicAnswer::on_end() {
  if (!streams_) {
    return respond_json(*exchange_, message(), ignored_);
  }
  begin();
  send("content_block_stop", {{"index", 0}});
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
  if (!streams_) return;
  begin();
  send("ping", Json::object());
}

}  // namespace hone::server
