// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/openai_answer.h"

#include <algorithm>
#include <ctime>
#include <numeric>
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

OpenAiAnswer::OpenAiAnswer(TextService& service, std::shared_ptr<Exchange> exchange,
                           OpenAiOptions options)
    : service_(service),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      id_(concat(options_.is_chat ? "chatcmpl-" : "cmpl-", exchange_->request().id)),
      created_(std::time(nullptr)) {
  const std::size_t choices =
      options_.prompt_tokens.size() * static_cast<std::size_t>(options_.choices_of_prompt);
  for (std::size_t i = 0; i < choices; ++i) choices_.emplace_back(options_.syntax, concat(id_, i));
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

// `delta` is the text of a completion, or the delta of a chat.
Json OpenAiAnswer::chunk(std::size_t index, Json delta, const Json& finish, Json logprobs) {
  Json out = head(options_.is_chat ? "chat.completion.chunk" : "text_completion");
  Json one = {{"index", index}};
  if (options_.is_chat && !std::exchange(choices_[index].has_begun, true)) {
    delta["role"] = "assistant";
    if (!delta.contains("content")) delta["content"] = "";
  }
  one[options_.is_chat ? "delta" : "text"] = std::move(delta);
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

// Collects the deltas of one event of a chat.
class OpenAiAnswer::Deltas final : public OutputListener {
 public:
  explicit Deltas(Index& calls) : calls_(calls) {}

  void on_begin(std::size_t /*index*/, const OutputItem& item) override {
    if (item.kind != OutputItem::Kind::Call) return;
    add_call({{"index", calls_++},
              {"id", item.id},
              {"type", "function"},
              {"function", {{"name", item.name}, {"arguments", ""}}}});
  }
  void on_text(std::size_t /*index*/, const OutputItem& item, std::string_view text) override {
    if (item.kind == OutputItem::Kind::Call) {
      add_call({{"index", calls_ - 1}, {"function", {{"arguments", text}}}});
    } else {
      const char* name = item.kind == OutputItem::Kind::Content ? "content" : "reasoning_content";
      deltas.push_back({{name, text}});
    }
  }
  void on_end(std::size_t /*index*/, const OutputItem& /*item*/) override {}

  std::vector<Json> deltas;

 private:
  void add_call(Json call) { deltas.push_back({{"tool_calls", Json::array({std::move(call)})}}); }
  Index& calls_;
};

bool OpenAiAnswer::on_event(std::size_t index, const infer::Event& event) {
  Choice& choice = choices_[index];
  if (event.token) choice.ids.push_back(*event.token);
  choice.logprob += event.logprob;
  Json logprobs = logprobs_of(choice, event);
  if (event.finished) {
    choice.finish_reason = finish_reason(*event.finished);
    choice.timings = event.timings;
  }
  return options_.is_chat ? take_chat(index, event, std::move(logprobs))
                          : take_completion(index, event, std::move(logprobs));
}

bool OpenAiAnswer::take_chat(std::size_t index, const infer::Event& event, Json logprobs) {
  Choice& choice = choices_[index];
  Deltas deltas(choice.calls);
  choice.items.push(event.text, &deltas);
  if (event.finished) {
    choice.items.finish(&deltas);
    if (choice.items.has_whole_calls() && *event.finished == infer::FinishReason::Stop) {
      choice.finish_reason = "tool_calls";
    }
  }
  if (!options_.streams) return !exchange_->is_closed();
  bool goes_on = !exchange_->is_closed();
  if (!choice.has_begun) goes_on = send(chunk(index, Json::object(), Json(), Json()));
  if (deltas.deltas.empty() && !logprobs.is_null()) deltas.deltas.push_back({{"content", ""}});
  for (Json& delta : deltas.deltas) {
    goes_on = send(chunk(index, std::move(delta), Json(), std::exchange(logprobs, Json())));
  }
  if (event.finished) {
    goes_on = send(chunk(index, Json::object(), choice.finish_reason, Json()));
  }
  return goes_on;
}

bool OpenAiAnswer::take_completion(std::size_t index, const infer::Event& event, Json logprobs) {
  Choice& choice = choices_[index];
  choice.text += event.text;  // the echo is there at first
  if (!options_.streams) return !exchange_->is_closed();
  const bool has_news = !choice.text.empty() || !logprobs.is_null() || event.finished;
  if (!has_news) return !exchange_->is_closed();
  const Json finish = event.finished ? Json(choice.finish_reason) : Json();
  return send(chunk(index, std::exchange(choice.text, {}), finish, std::move(logprobs)));
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

// The choices that are answered, by prompt.
std::vector<std::size_t> OpenAiAnswer::answered() const {
  const auto each = static_cast<std::size_t>(options_.choices_of_prompt);
  const auto kept = static_cast<std::size_t>(options_.answered_choices);
  std::vector<std::size_t> all(choices_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (kept == 0 || kept == each) return all;
  const auto mean = [this](std::size_t index) {
    const Choice& choice = choices_[index];
    return choice.logprob / static_cast<double>(std::max<std::size_t>(1, choice.ids.size()));
  };
  std::vector<std::size_t> out;
  for (std::size_t prompt = 0; prompt < choices_.size(); prompt += each) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(prompt);
    std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(each),
                     [&](std::size_t a, std::size_t b) { return mean(a) > mean(b); });
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(kept));
  }
  return out;
}

Json OpenAiAnswer::whole_message(const Choice& choice) {
  const std::string content = choice.items.text_of(OutputItem::Kind::Content);
  const std::string reasoning = choice.items.text_of(OutputItem::Kind::Reasoning);
  const bool has_calls = choice.items.has_calls();
  Json out = {{"role", "assistant"},
              {"content", content.empty() && has_calls ? Json() : Json(content)},
              {"refusal", nullptr}};
  if (!reasoning.empty()) out["reasoning_content"] = reasoning;
  if (!has_calls) return out;
  for (const OutputItem& item : choice.items.items()) {
    if (item.kind != OutputItem::Kind::Call) continue;
    out["tool_calls"].push_back({{"id", item.id},
                                 {"type", "function"},
                                 {"function", {{"name", item.name}, {"arguments", item.text}}}});
  }
  return out;
}

Json OpenAiAnswer::whole_choice(std::size_t index) const {
  const Choice& choice = choices_[index];
  Json out = {{"index", index}};
  Json logprobs;
  if (options_.is_chat) {
    out["message"] = whole_message(choice);
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
  for (const std::size_t choice : answered()) {
    out["choices"].push_back(whole_choice(choice));
    out["choices"].back()["index"] = out["choices"].size() - 1;
  }
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
