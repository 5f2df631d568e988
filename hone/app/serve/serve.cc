// SPDX-License-Identifier: Apache-2.0
#include "hone/app/serve/serve.h"

#include <ctime>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/loaded_weights.h"
#include "hone/app/serve/chat_template.h"
#include "hone/server/api/text_service.h"

namespace hone::app {

namespace {

// Ends the jobs of a service while its engine lives.
struct Finisher {
  server::TextService& service;
  ~Finisher() { service.finish(); }
};

}  // namespace

void serve(const ServeOptions& options, Executor& executor) {
  infer::EngineOptions engine_options = options.engine;
  engine_options.executor = &executor;
  // The service begins after the engine, which calls it at the end of each step.
  std::optional<server::TextService> service;
  engine_options.on_step_end = [&service] {
    if (service) service->on_step_end();
  };
  std::unique_ptr<infer::Engine> engine;
  blame_weights({&options.model, 1},
                [&] { engine = infer::Engine::open_or_throw(options.model, engine_options); });
  log_loaded(engine->info());
  const server::ServedModel model{
      .engine = engine.get(),
      .chat_template = open_chat_template(engine->info().chat_template, engine->tokenizer(),
                                          options.chat_template),
      .id = served_name(options),
      .created = std::time(nullptr)};
  const Clock& clock = engine_options.clock != nullptr ? *engine_options.clock : steady_clock();
  service.emplace(model, clock);
  {
    const Finisher finisher{*service};
    const std::jthread loop([&engine](std::stop_token stop) { engine->run(std::move(stop)); });
    run_server(
        options, *service,
        {{"context", engine->info().context}, {"chat_template", model.chat_template != nullptr}});
  }
}

}  // namespace hone::app
