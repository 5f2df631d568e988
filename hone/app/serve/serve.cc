// SPDX-License-Identifier: Apache-2.0
#include "hone/app/serve/serve.h"

#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "hone/app/blame_weights.h"
#include "hone/app/loaded_weights.h"
#include "hone/app/serve/chat_template.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"

namespace hone::app {
namespace {

std::string name_of(const ServeOptions& options) {
  if (!options.name.empty()) return options.name;
  const std::filesystem::path path = std::filesystem::absolute(options.model).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  return last.extension() == ".gguf" ? last.stem().string() : last.filename().string();
}

void write_port(const std::filesystem::path& file, int port) {
  AtomicFile target(file);
  target.write(concat(port, "\n"));
  target.commit();
}

}  // namespace

void serve(const ServeOptions& options, Executor& executor) {
  infer::EngineOptions engine_options = options.engine;
  engine_options.executor = &executor;
  // The server begins after the engine, which calls it at the end of each step.
  std::optional<server::Server> server;
  engine_options.on_step_end = [&server] {
    if (server) server->on_step_end();
  };
  std::unique_ptr<infer::Engine> engine;
  blame_weights({&options.model, 1},
                [&] { engine = infer::Engine::open_or_throw(options.model, engine_options); });
  log_loaded(engine->info());
  const server::ServedModel model{
      .engine = engine.get(),
      .chat_template = open_chat_template(engine->info().chat_template, engine->tokenizer(),
                                          options.chat_template),
      .id = name_of(options),
      .created = std::time(nullptr)};
  const bool has_template = model.chat_template != nullptr;
  const Clock& clock = engine_options.clock != nullptr ? *engine_options.clock : steady_clock();
  server.emplace(options.server, model, clock);
  std::jthread loop([&engine](std::stop_token stop) { engine->run(std::move(stop)); });
  server->start();
  if (!options.port_file.empty()) write_port(options.port_file, server->port());
  if (options.on_ready) {
    options.on_ready({{"host", options.server.listener.host},
                      {"port", server->port()},
                      {"model", model.id},
                      {"context", engine->info().context},
                      {"chat_template", has_template}});
  }
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  stopped.wait(lock, options.stop, [] { return false; });
  log_info("ending: running requests may finish");
  server->stop();
  loop.request_stop();
  loop.join();
}

}  // namespace hone::app
