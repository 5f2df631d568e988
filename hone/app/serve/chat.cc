// SPDX-License-Identifier: Apache-2.0
#include "hone/app/serve/chat.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/loaded_weights.h"
#include "hone/app/serve/chat_template.h"
#include "hone/core/check.h"
#include "hone/text/turn_tokens.h"

namespace hone::app {

Chat::Chat(const ChatOptions& options, Executor& executor) : options_(options) {
  options_.engine.executor = &executor;
  blame_weights({&options_.model, 1},
                [&] { engine_ = infer::Engine::open_or_throw(options_.model, options_.engine); });
  template_ = open_chat_template(engine_->info().chat_template, engine_->tokenizer(),
                                 options_.chat_template);
  if (template_ == nullptr) {
    fail_unsupported(options_.model.string(), "a model with a chat template, or --chat-template",
                     "a model without one");
  }
  log_loaded(engine_->info());
  options_.request.sampling = infer::resolve_sampling(options_.request.sampling, options_.sampling,
                                                      engine_->info().generation_defaults);
  clear();
}

void Chat::clear() {
  messages_ = Json::array();
  if (!options_.system.empty()) {
    messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }
}

infer::Result Chat::answer(const std::string& message,
                           const std::function<void(std::string_view)>& on_text,
                           const std::stop_token& stop) {
  const Json before = messages_;
  messages_.push_back({{"role", "user"}, {"content", message}});
  try {
    const std::vector<text::TextSegment> prompt =
        template_->render({.messages = messages_,
                           .tools = options_.tools,
                           .variables = options_.variables,
                           .now = std::time(nullptr)});
    const text::Tokenizer& tokenizer = engine_->tokenizer();
    infer::Request request = options_.request;
    request.tokens = text::with_bos(tokenizer, tokenizer.encode(prompt));
    const Index left = engine_->info().context - std::ssize(request.tokens);
    request.max_tokens = std::clamp<Index>(request.max_tokens, 1, std::max<Index>(1, left));
    infer::Result result = engine_->generate(
        std::move(request),
        [&](const infer::Event& event) {
          if (on_text && !event.text.empty()) on_text(event.text);
        },
        stop);
    messages_.push_back({{"role", "assistant"}, {"content", result.text}});
    return result;
  } catch (...) {
    messages_ = before;
    throw;
  }
}

}  // namespace hone::app
