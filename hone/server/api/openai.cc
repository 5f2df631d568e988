// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/openai.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/server/api/between_steps.h"
#include "hone/server/api/chat_request.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/messages.h"
#include "hone/server/api/openai_answer.h"
#include "hone/server/api/prompt_scores.h"
#include "hone/server/api/prompts.h"
#include "hone/server/api/request_fields.h"
#include "hone/text/turn_tokens.h"

namespace hone::server {
namespace {

using infer::Request;
using infer::TokenId;

constexpr Index kMostChoices = 16;
constexpr std::size_t kMostPrompts = 64;

// What both kinds read.
struct Common {
  Request request;
  OpenAiOptions options;
  ResponseSchema schema;
  Index choices = 1;
};

void read_common(Fields& fields, const TextService& service, std::uint64_t salt, Common& out) {
  check_model(fields, service.model().id);
  read_sampling(fields, service, out.request);
  out.schema = read_response_format(fields);
  out.request.salt = salt;
  out.choices = fields.integer("n", 1, kMostChoices).value_or(1);
  out.options.streams = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.find("stream_options")) {
    Fields inner(*options, "stream_options");
    out.options.includes_usage = inner.boolean("include_usage").value_or(false);
  }
  out.options.returns_ids = fields.boolean("return_token_ids").value_or(false);
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar",
                           "structured_outputs", "grammar"}) {
    fields.refuse(name);
  }
  // These name the request, or say what happens to it elsewhere.
  for (const char* name : {"user", "metadata", "store", "service_tier", "safety_identifier",
                           "prompt_cache_key", "verbosity"}) {
    fields.accept(name);
  }
}

void submit(TextService& service, const std::shared_ptr<Exchange>& exchange, Common common,
            std::vector<std::vector<TokenId>> prompts) {
  OpenAiOptions& options = common.options;
  options.choices_of_prompt = common.choices;
  std::vector<Request> requests;
  for (std::vector<TokenId>& prompt : prompts) {
    options.prompt_tokens.push_back(std::ssize(prompt));
    for (Index choice = 0; choice < common.choices; ++choice) {
      Request request = common.request;
      request.tokens = prompt;
      request.sampling.choice = static_cast<std::uint32_t>(choice);
      requests.push_back(std::move(request));
    }
  }
  const auto generation = std::make_shared<Generation>(
      service, exchange, std::make_unique<OpenAiAnswer>(service, exchange, std::move(options)));
  generation->start(std::move(requests));
}

// Scores the prompts first.
void submit_scored(TextService& service, const std::shared_ptr<Exchange>& exchange, Common common,
                   std::vector<std::vector<TokenId>> prompts) {
  auto shared = std::make_shared<Common>(std::move(common));
  shared->options.echo_ids = prompts;
  const auto score = [exchange, shared](infer::Engine& engine, std::size_t i) {
    if (exchange->is_closed()) return false;
    OpenAiOptions& options = shared->options;
    options.echo_scores.push_back(score_prompt(engine, options.echo_ids[i],
                                               std::max<Index>(1, options.top_logprobs),
                                               shared->request.salt));
    return true;
  };
  const auto go_on = [&service, exchange, shared,
                      held = service.hold()](const std::exception_ptr& error) {
    service.post([&service, exchange, shared, held, error] {
      try {
        if (error) std::rethrow_exception(error);
        std::vector<std::vector<TokenId>> scored = shared->options.echo_ids;
        submit(service, exchange, std::move(*shared), std::move(scored));
      } catch (...) {
        exchange->respond(to_api_error(std::current_exception()).response());
      }
    });
  };
  post_pieces(service.engine(), {.pieces = prompts.size(), .run = score, .end = go_on});
}

}  // namespace

void post_completions(TextService& service, const std::shared_ptr<Exchange>& exchange,
                      std::uint64_t salt) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  Common common;
  read_common(fields, service, salt, common);
  fields.refuse("suffix");
  Prompts prompts = read_prompts(fields, "prompt", service, kMostPrompts);
  const Index context = service.engine().info().context;
  common.request.max_tokens =
      std::min(fields.integer("max_tokens", 1, Index{1} << 30).value_or(16), context);
  common.request.min_tokens = std::min(common.request.min_tokens, common.request.max_tokens);
  if (const auto logprobs = fields.integer("logprobs", 0, 20)) {
    common.options.has_logprobs = true;
    common.options.top_logprobs = *logprobs;
    common.request.logprobs = std::max<Index>(1, *logprobs);
  }
  const bool echoes = fields.boolean("echo").value_or(false);
  if (echoes) common.options.echo = prompts.texts;
  if (const auto best_of = fields.integer("best_of", 1, kMostChoices)) {
    if (*best_of < common.choices) fields.fail("best_of", "at least the number of choices n");
    if (*best_of > common.choices && common.options.streams) {
      fields.fail("stream", "false with a best_of above n");
    }
    common.options.answered_choices = std::exchange(common.choices, *best_of);
    common.request.logprobs = std::max<Index>(1, common.request.logprobs);
  }
  set_schema(service, common.schema.text, common.schema.label, common.request);
  common.options.ignored = fields.ignored_names();
  if (echoes && common.options.has_logprobs) {
    if (common.options.streams) fields.fail("stream", "false with echo and logprobs");
    return submit_scored(service, exchange, std::move(common), std::move(prompts.ids));
  }
  submit(service, exchange, std::move(common), std::move(prompts.ids));
}

void post_chat_completions(TextService& service, const std::shared_ptr<Exchange>& exchange,
                           std::uint64_t salt) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  Common common;
  common.options.is_chat = true;
  read_common(fields, service, salt, common);
  ChatRequest chat = read_chat(fields);
  chat.schema = common.schema.text;
  chat.schema_label = common.schema.label;
  for (const char* name :
       {"functions", "function_call", "audio", "prediction", "web_search_options"}) {
    fields.refuse(name);
  }
  for (const std::string& modality : fields.strings("modalities", 8)) {
    if (modality != "text") fields.fail("modalities", "text only");
  }
  const auto asked = fields.integer("max_completion_tokens", 1, Index{1} << 30);
  const auto older = fields.integer("max_tokens", 1, Index{1} << 30);
  ChatPlan plan = plan_chat(service, std::move(chat), common.request, "messages");
  set_length(service, asked ? asked : older, common.request);
  common.options.syntax = std::move(plan.syntax);
  common.options.has_logprobs = fields.boolean("logprobs").value_or(false);
  common.options.top_logprobs = fields.integer("top_logprobs", 0, 20).value_or(0);
  if (common.options.top_logprobs > 0 && !common.options.has_logprobs) {
    fields.fail("top_logprobs", "logprobs = true with it");
  }
  if (common.options.has_logprobs) {
    common.request.logprobs = std::max<Index>(1, common.options.top_logprobs);
  }
  common.options.ignored = join_names(fields.ignored_names(), plan.ignored);
  std::vector<TokenId> ids = std::exchange(common.request.tokens, {});
  submit(service, exchange, std::move(common), {std::move(ids)});
}

}  // namespace hone::server
