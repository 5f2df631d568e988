// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/responses_answer.h"

#include <ctime>
#include <utility>

#include "hone/core/check.h"
#include "hone/server/api/json_text.h"

namespace hone::server {
ResponsesAnswer::ResponsesAnswer(Service& service, std::shared_ptr<Exchange> exchange, bool streams,
                                 Index prompt_tokens, Json echoed, std::string ignored)
    : service_(service),
      exchange_(std::move(exchange)),
      streams_(streams),
      prompt_tokens_(prompt_tokens),
      echoed_(std::move(echoed)),
      ignored_(std::move(ignored)),
      item_id_(concat("msg_", exchange_->request().id)),
      created_(std::time(nullptr)) {}

Json ResponsesAnswer::part() const {
  return {{"type", "output_text"}, {"text", text_}, {"annotations", Json::array()}};
}

Json ResponsesAnswer::item(std::string_view status) const {
  Json content = Json::array();
  if (status != "in_progress") content.push_back(part());
  return {{"type", "message"},
          {"id", item_id_},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Json ResponsesAnswer::response() const {
  const bool is_done = status_ != "in_progress";
  Json details, usage, output = Json::array();
  if (status_ == "incomplete") details = {{"reason", "max_output_tokens"}};
  if (is_done) {
    output.push_back(item(status_));
    usage = {{"input_tokens", prompt_tokens_},
             {"input_tokens_details", {{"cached_tokens", timings_.cached_tokens}}},
             {"output_tokens", timings_.generated_tokens},
             {"output_tokens_details", {{"reasoning_tokens", 0}}},
             {"total_tokens", prompt_tokens_ + timings_.generated_tokens}};
  }
  Json out = {{"id", concat("resp_", exchange_->request().id)},
              {"object", "response"},
              {"created_at", created_},
              {"status", status_},
              {"error", nullptr},
              {"incomplete_details", std::move(details)},
              {"model", service_.model().id},
              {"output", std::move(output)},
              {"previous_response_id", nullptr},
              {"store", false},
              {"truncation", "disabled"},
              {"usage", std::move(usage)}};
  out.update(echoed_);
  return out;
}

Json ResponsesAnswer::place() const {
  return {{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
}

bool ResponsesAnswer::send(std::string_view type, const Json& data) {
  Json named = {{"type", type}, {"sequence_number", sequence_++}};
  named.update(data);
  return exchange_->write(concat("event: ", type, "\ndata: ", json_text(named), "\n\n"));
}

bool ResponsesAnswer::begin() {
  if (std::exchange(has_begun_, true)) return true;
  begin_events(*exchange_, ignored_);
  send("response.created", {{"response", response()}});
  send("response.in_progress", {{"response", response()}});
  send("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress")}});
  Json added = place();
  added["part"] = part();
  return send("response.content_part.added", added);
}

bool ResponsesAnswer::on_event(std::size_t /*choice*/, const infer::Event& event) {
  if (streams_) begin();
  text_ += event.text;
  if (event.finished) {
    timings_ = event.timings;
    status_ = *event.finished == infer::FinishReason::Stop ? "completed" : "incomplete";
  }
  if (!streams_) return !exchange_->is_closed();
  if (event.text.empty()) return !exchange_->is_closed();
  Json delta = place();
  delta["delta"] = event.text;
  delta["logprobs"] = Json::array();
  return send("response.output_text.delta", delta);
}

void ResponsesAnswer::on_end() {
  if (!streams_) {
    return respond_json(*exchange_, response(), ignored_);
  }
  begin();
  Json done = place();
  done["text"] = text_;
  done["logprobs"] = Json::array();
  send("response.output_text.done", done);
  Json last = place();
  last["part"] = part();
  send("response.content_part.done", last);
  send("response.output_item.done", {{"output_index", 0}, {"item", item(status_)}});
  send(concat("response.", status_), {{"response", response()}});
  exchange_->end_stream();
}

void ResponsesAnswer::on_error(const ApiError& error) {
  if (!has_begun_) return exchange_->respond(error.response());
  const Json told = error.body()["error"];
  send("error", {{"code", told["code"]}, {"message", told["message"]}, {"param", told["param"]}});
  exchange_->end_stream(false);
}

void ResponsesAnswer::on_silence() {
  if (!streams_) return;
  begin();
  exchange_->write(": ping\n\n");
}

}  // namespace hone::server
