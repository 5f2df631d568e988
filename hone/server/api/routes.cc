// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/routes.h"

#include <string>
#include <utility>

#include "hone/server/api/anthropic.h"
#include "hone/server/api/chat_request.h"
#include "hone/server/api/embeddings.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/messages.h"
#include "hone/server/api/openai.h"
#include "hone/server/api/request_fields.h"
#include "hone/server/api/responses.h"
#include "hone/server/api/text_service.h"
#include "hone/server/api/token_text.h"
#include "hone/server/page/page.h"
#include "hone/text/turn_tokens.h"

namespace hone::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

// The context length in the spellings that clients look for.
Json model_json(const TextService& service) {
  const infer::ModelInfo& info = service.engine().info();
  const model_io::Architecture& architecture = info.architecture;
  return {{"id", service.model().id},
          {"object", "model"},
          {"created", service.model().created},
          {"owned_by", "hone"},
          {"max_model_len", info.context},
          {"context_length", info.context},
          {"meta",
           {{"n_ctx", info.context},
            {"n_ctx_train", architecture.context},
            {"n_vocab", architecture.vocab_size},
            {"n_embd", architecture.hidden_size},
            {"n_params", architecture.parameters()},
            {"size", info.weight_bytes}}}};
}

void get_models(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const Json model = model_json(service);
  respond_json(
      *exchange,
      {{"object", "list"}, {"data", Json::array({model})}, {"models", Json::array({model})}});
}

void get_model(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  check_model_path(exchange->request().path, service.model().id);
  respond_json(*exchange, model_json(service));
}

void get_props(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const infer::ModelInfo& info = service.engine().info();
  respond_json(*exchange, {{"default_generation_settings", {{"n_ctx", info.context}}},
                           {"model_path", service.model().id},
                           {"n_ctx", info.context},
                           {"has_chat_template", service.model().chat_template != nullptr}});
}

void get_tokenizer_info(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  Json json = {{"tokenizer_class", tokenizer.kind()}, {"vocab_size", tokenizer.vocab_size()}};
  for (const auto& [name, piece] : text::special_token_names(tokenizer)) json[name] = piece;
  respond_json(*exchange, json);
}

// The prompt of a chat request.
std::vector<text::TextSegment> prompt_of(const TextService& service, Fields& fields) {
  ChatRequest chat = read_chat(fields);
  chat.conversation.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  return chat_prompt(service, chat);
}

// Takes the text as `prompt` or `content`, as the servers do that clients know.
void post_tokenize(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  std::vector<infer::TokenId> ids;
  if (fields.has("messages")) {
    ids = prompt_ids(service, prompt_of(service, fields));
  } else {
    const auto prompt = fields.string("prompt");
    const std::string text = prompt ? *prompt : fields.required_string("content");
    const bool adds = fields.boolean("add_special_tokens").value_or(true) &&
                      fields.boolean("add_special").value_or(true);
    const bool parses = fields.boolean("parse_special").value_or(true);
    ids = tokenizer.encode(text, {.add_bos = adds, .parse_special = parses});
  }
  Json pieces = Json::array();
  if (fields.boolean("with_pieces").value_or(false)) {
    for (const infer::TokenId id : ids) pieces.push_back(token_text(tokenizer, id));
  }
  Json out = {
      {"tokens", ids}, {"count", ids.size()}, {"max_model_len", service.engine().info().context}};
  if (!pieces.empty()) out["pieces"] = std::move(pieces);
  respond_json(*exchange, out);
}

void post_detokenize(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  const text::Tokenizer& tokenizer = service.engine().tokenizer();
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.fail("tokens", "an array of token ids");
  std::vector<infer::TokenId> ids;
  for (const Json& id : *tokens) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size()) {
      fields.fail("tokens", "token ids of the vocabulary");
    }
    ids.push_back(id.get<infer::TokenId>());
  }
  const std::string text = tokenizer.decode(ids, /*keep_special=*/true);
  respond_json(*exchange, {{"prompt", text}, {"content", text}});
}

void post_apply_template(TextService& service, const ExchangePtr& exchange, std::uint64_t) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  respond_json(*exchange, {{"prompt", text::joined_text(prompt_of(service, fields))}});
}

// The page holds nothing that needs a key; what it asks for does.
void get_page(TextService&, const ExchangePtr& exchange, std::uint64_t) {
  HttpResponse response{.type = "text/html; charset=utf-8", .body = std::string(page_text())};
  response.fields.add("Content-Security-Policy",
                      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
                      "form-action 'none'");
  exchange->respond(response);
}

}  // namespace

std::vector<Route> text_routes(TextService& service) {
  using Function = void (*)(TextService&, const ExchangePtr&, std::uint64_t salt);
  const auto bind = [&service](Function function) {
    return [&service, function](const ExchangePtr& exchange, std::uint64_t salt) {
      function(service, exchange, salt);
    };
  };
  return {{"GET", "/", bind(get_page), /*is_open=*/true},
          {"GET", "/v1/models", bind(get_models)},
          {"GET", "/v1/models/", bind(get_model)},
          {"GET", "/props", bind(get_props)},
          {"GET", "/tokenizer_info", bind(get_tokenizer_info)},
          {"POST", "/v1/completions", bind(post_completions)},
          {"POST", "/v1/chat/completions", bind(post_chat_completions)},
          {"POST", "/v1/embeddings", bind(post_embeddings)},
          {"POST", "/v1/messages", bind(post_messages)},
          {"POST", "/v1/responses", bind(post_responses)},
          {"POST", "/v1/messages/count_tokens", bind(post_count_tokens)},
          {"POST", "/tokenize", bind(post_tokenize)},
          {"POST", "/detokenize", bind(post_detokenize)},
          {"POST", "/apply-template", bind(post_apply_template)}};
}

}  // namespace hone::server
