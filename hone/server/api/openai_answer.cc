// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/openai_answer.h"

#include <ctime>
#include <utility>

#include "hone/core/check.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/token_text.h"

namespace hone::server {
namespace {

std::string_view finish_reason(infer::FinishReason reason) {
  switch (reason) {
    case infer::FinishReason::Length:
    case infer::FinishReason::Context:
      return "length";
    case infer::FinishReason::Cancelled:
      return "cancelled";
    default:
      return "stop";
  }
}

}  // namespace

OpenAiAnswer::OpenAiAnswer(Service& service, std::shared_ptr<Exchange> exchange,
                           OpenAiOptions options)
    : service_(service),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      id_(concat(options_.is_chat ? "chatcmpl-" : "cmpl-", exchange_->request().id)),
      created_(std::time(nullptr)),
      choices_(options_.prompt_tokens.size() *
               static_cast<std::size_t>(options_.choices_of_prompt)) {
  for (std::size_t i = 0; i < choices_.size() && !options_.echo.empty(); ++i) {
    echo_prompt(choices_[i], i / static_cast<std::size_t>(options_.choices_of_prompt));
  }
}

void OpenAiAnswer::echo_prompt(Choice& choice, std::size_t prompt) {
  choice.text = options_.echo[prompt];
  if (options_.echo_scores.empty()) return;
  const std::vector<infer::TokenId>& ids = options_.echo_ids[prompt];
  const PromptScores& scores = options_.echo_scores[prompt];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i == 0) {
      add_logprob(choice, ids[i], Json(), {});
    } else {
      add_logprob(choice, ids[i], scores.logprobs[i - 1], scores.top[i - 1]);
    }
  }
}

// Notes a token of a completion. The token itself is always among the most likely ones.
void OpenAiAnswer::add_logprob(Choice& choice, infer::TokenId id, const Json& logprob,
                               std::span<const infer::TokenLogprob> most_likely) {
  const text::Tokenizer& tokenizer = service_.engine().tokenizer();
  const std::string token = token_text(tokenizer, id);
  Json top;
  if (!logprob.is_null()) {
    top = Json::object();
    for (const infer::TokenLogprob& one : most_likely) {
      if (std::ssize(top) == options_.top_logprobs) break;
      top[token_text(tokenizer, one.id)] = one.logprob;
    }
    top[token] = logprob;
  }
  choice.tokens.push_back(token);
  choice.token_logprobs.push_back(logprob);
  choice.top_logprobs.push_back(std::move(top));
  choice.offsets.push_back(choice.offset);
  choice.offset += std::ssize(token);
}

Json OpenAiAnswer::head(std::string_view object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", service_.model().id},
          {"system_fingerprint", service_.fingerprint()}};
}

void OpenAiAnswer::begin_stream() {
  if (std::exchange(has_begun_, true)) return;
  begin_events(*exchange_, options_.ignored);
}

bool OpenAiAnswer::send(const Json& json) {
  begin_stream();
  return exchange_->write(concat("data: ", json_text(json), "\n\n"));
}

Json OpenAiAnswer::chunk(std::size_t index, const std::string& text, const Json& finish,
                         Json logprobs) {
  Choice& choice = choices_[index];
  Json out = head(options_.is_chat ? "chat.completion.chunk" : "text_completion");
  Json one = {{"index", index}};
  if (options_.is_chat) {
    Json delta = Json::object();
    if (!std::exchange(choice.has_begun, true)) delta["role"] = "assistant";
    if (!text.empty() || delta.contains("role")) delta["content"] = text;
    one["delta"] = std::move(delta);
  } else {
    one["text"] = text;
  }
  one["logprobs"] = std::move(logprobs);
  one["finish_reason"] = finish;
  out["choices"] = Json::array({std::move(one)});
  if (options_.includes_usage) out["usage"] = Json();
  return out;
}

Json OpenAiAnswer::logprobs_of(Choice& choice, const infer::Event& event) {
  if (!options_.has_logprobs || !event.token) return {};
  const text::Tokenizer& tokenizer = service_.engine().tokenizer();
  if (options_.is_chat) {
    Json entry = token_json(tokenizer, *event.token, event.logprob);
    Json top = Json::array();
    for (const infer::TokenLogprob& one : event.top) {
      if (std::ssize(top) == options_.top_logprobs) break;
      top.push_back(token_json(tokenizer, one.id, one.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    choice.chat_logprobs.push_back(entry);
    return {{"content", Json::array({std::move(entry)})}};
  }
  add_logprob(choice, *event.token, event.logprob, event.top);
  const auto last = [](const Json& list) { return Json::array({list.back()}); };
  return {{"tokens", last(choice.tokens)},
          {"token_logprobs", last(choice.token_logprobs)},
          {"top_logprobs", last(choice.top_logprobs)},
          {"text_offset", last(choice.offsets)}};
}

bool OpenAiAnswer::on_event(std::size_t index, const infer::Event& event) {
  Choice& choice = choices_[index];
  if (event.token) choice.ids.push_back(*event.token);
  Json logprobs = logprobs_of(choice, event);
  if (event.finished) {
    choice.finish_reason = finish_reason(*event.finished);
    choice.timings = event.timings;
  }
  if (!options_.streams) {
    choice.text += event.text;
    return !exchange_->is_closed();
  }
  std::string text = std::exchange(choice.text, {}) + event.text;  // with the echo at first
  bool goes_on = true;
  if (options_.is_chat && !choice.has_begun) goes_on = send(chunk(index, "", Json(), Json()));
  if (!text.empty() || !logprobs.is_null()) {
    const bool is_last = event.finished && !options_.is_chat;
    goes_on = send(
        chunk(index, text, is_last ? Json(choice.finish_reason) : Json(), std::move(logprobs)));
    if (is_last) return goes_on;
  }
  if (event.finished) goes_on = send(chunk(index, "", choice.finish_reason, Json()));
  return goes_on;
}

Json OpenAiAnswer::usage() const {
  Index prompt = 0, cached = 0, generated = 0;
  for (const Index tokens : options_.prompt_tokens) prompt += tokens;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const infer::Timings& timings = choices_[i].timings;
    generated += timings.generated_tokens;
    if (i % static_cast<std::size_t>(options_.choices_of_prompt) == 0) {
      cached += timings.cached_tokens;
    }
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json OpenAiAnswer::whole_choice(std::size_t index) const {
  const Choice& choice = choices_[index];
  Json out = {{"index", index}};
  Json logprobs;
  if (options_.is_chat) {
    out["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    if (options_.has_logprobs) logprobs = {{"content", choice.chat_logprobs}};
  } else {
    out["text"] = choice.text;
    if (options_.has_logprobs) {
      logprobs = {{"tokens", choice.tokens},
                  {"token_logprobs", choice.token_logprobs},
                  {"top_logprobs", choice.top_logprobs},
                  {"text_offset", choice.offsets}};
    }
  }
  out["logprobs"] = std::move(logprobs);
  out["finish_reason"] = choice.finish_reason;
  if (options_.returns_ids) out["token_ids"] = choice.ids;
  return out;
}

void OpenAiAnswer::on_end() {
  if (options_.streams) {
    begin_stream();
    if (options_.includes_usage) {
      Json last = head(options_.is_chat ? "chat.completion.chunk" : "text_completion");
      last["choices"] = Json::array();
      last["usage"] = usage();
      send(last);
    }
    exchange_->write("data: [DONE]\n\n");
    return exchange_->end_stream();
  }
  Json out = head(options_.is_chat ? "chat.completion" : "text_completion");
  out["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) out["choices"].push_back(whole_choice(i));
  out["usage"] = usage();
  respond_json(*exchange_, out, options_.ignored);
}

void OpenAiAnswer::on_error(const ApiError& error) {
  if (!has_begun_) return exchange_->respond(error.response());
  exchange_->write(concat("data: ", json_text(error.body()), "\n\n"));
  exchange_->end_stream(false);
}

void OpenAiAnswer::on_silence() {
  if (!options_.streams) return;
  begin_stream();
  exchange_->write(": ping\n\n");
}

}  // namespace hone::server
