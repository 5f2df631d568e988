// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/responses_answer.h"

#include <ctime>
#include <utility>

#include "hone/core/check.h"
#include "hone/server/api/json_text.h"

namespace hone::server {
namespace {

Json part_of(const OutputItem& item, const std::string& text) {
  if (item.kind == OutputItem::Kind::Reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

// What events that a text has grown or ended are called.
std::string_view event_of(const OutputItem& item) {
  switch (item.kind) {
    case OutputItem::Kind::Reasoning:
      return "response.reasoning_text";
    case OutputItem::Kind::Call:
      return "response.function_call_arguments";
    case OutputItem::Kind::Content:
      break;
  }
  return "response.output_text";
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(TextService& service, std::shared_ptr<Exchange> exchange,
                                 ResponsesOptions options)
    : service_(service),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      created_(std::time(nullptr)),
      items_(options_.syntax, exchange_->request().id) {}

std::string ResponsesAnswer::item_id(std::size_t index) const {
  return concat("item_", exchange_->request().id, "_", index);
}

Json ResponsesAnswer::item_json(std::size_t index, const OutputItem& item,
                                std::string_view status) const {
  const bool is_whole = status != "in_progress";
  const std::string text = is_whole ? item.text : std::string();
  if (item.kind == OutputItem::Kind::Call) {
    return {{"type", "function_call"}, {"id", item_id(index)}, {"call_id", item.id},
            {"name", item.name},       {"arguments", text},    {"status", status}};
  }
  Json content = Json::array();
  if (is_whole) content.push_back(part_of(item, text));
  if (item.kind == OutputItem::Kind::Reasoning) {
    return {{"type", "reasoning"},
            {"id", item_id(index)},
            {"summary", Json::array()},
            {"content", std::move(content)},
            {"status", status}};
  }
  return {{"type", "message"},
          {"id", item_id(index)},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

Json ResponsesAnswer::response() const {
  const bool is_done = status_ != "in_progress";
  Json details, usage, output = Json::array();
  if (status_ == "incomplete") details = {{"reason", "max_output_tokens"}};
  if (is_done) {
    for (std::size_t i = 0; i < items_.items().size(); ++i) {
      const bool is_last = i + 1 == items_.items().size();
      output.push_back(item_json(i, items_.items()[i], is_last ? status_ : "completed"));
    }
    usage = {{"input_tokens", options_.prompt_tokens},
             {"input_tokens_details", {{"cached_tokens", timings_.cached_tokens}}},
             {"output_tokens", timings_.generated_tokens},
             {"output_tokens_details", {{"reasoning_tokens", 0}}},
             {"total_tokens", options_.prompt_tokens + timings_.generated_tokens}};
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
  out.update(options_.echoed);
  return out;
}

Json ResponsesAnswer::place(std::size_t index, const OutputItem& item) const {
  Json out = {{"item_id", item_id(index)}, {"output_index", index}};
  if (item.kind != OutputItem::Kind::Call) out["content_index"] = 0;
  return out;
}

void ResponsesAnswer::send(std::string_view type, const Json& data) {
  Json named = {{"type", type}, {"sequence_number", sequence_++}};
  named.update(data);
  goes_on_ = exchange_->write(concat("event: ", type, "\ndata: ", json_text(named), "\n\n"));
}

void ResponsesAnswer::begin() {
  if (std::exchange(has_begun_, true)) return;
  begin_events(*exchange_, options_.ignored);
  send("response.created", {{"response", response()}});
  send("response.in_progress", {{"response", response()}});
}

void ResponsesAnswer::on_begin(std::size_t index, const OutputItem& item) {
  send("response.output_item.added",
       {{"output_index", index}, {"item", item_json(index, item, "in_progress")}});
  if (item.kind == OutputItem::Kind::Call) return;
  Json added = place(index, item);
  added["part"] = part_of(item, {});
  send("response.content_part.added", added);
}

void ResponsesAnswer::on_text(std::size_t index, const OutputItem& item, std::string_view text) {
  Json delta = place(index, item);
  delta["delta"] = text;
  if (item.kind == OutputItem::Kind::Content) delta["logprobs"] = Json::array();
  send(concat(event_of(item), ".delta"), delta);
}

void ResponsesAnswer::on_end(std::size_t index, const OutputItem& item) {
  Json done = place(index, item);
  if (item.kind == OutputItem::Kind::Call) {
    done["name"] = item.name;
    done["arguments"] = item.text;
  } else {
    done["text"] = item.text;
    if (item.kind == OutputItem::Kind::Content) done["logprobs"] = Json::array();
  }
  send(concat(event_of(item), ".done"), done);
  if (item.kind != OutputItem::Kind::Call) {
    Json last = place(index, item);
    last["part"] = part_of(item, item.text);
    send("response.content_part.done", last);
  }
  send("response.output_item.done",
       {{"output_index", index},
        {"item", item_json(index, item, status_ == "in_progress" ? "completed" : status_)}});
}

bool ResponsesAnswer::on_event(std::size_t /*choice*/, const infer::Event& event) {
  OutputListener* listener = options_.streams ? this : nullptr;
  if (options_.streams) begin();
  items_.push(event.text, listener);
  if (event.finished) {
    timings_ = event.timings;
    status_ = *event.finished == infer::FinishReason::Stop ? "completed" : "incomplete";
    items_.finish(listener);
  }
  return goes_on_ && !exchange_->is_closed();
}

void ResponsesAnswer::on_end() {
  if (!options_.streams) return respond_json(*exchange_, response(), options_.ignored);
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
  if (!options_.streams) return;
  begin();
  exchange_->write(": ping\n\n");
}

}  // namespace hone::server
