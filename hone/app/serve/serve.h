// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"
#include "hone/server/server.h"

namespace hone::app {

struct ServeOptions {
  std::filesystem::path model;
  std::string name;                     // of the model; empty: that of its file or folder
  infer::EngineOptions engine;          // serve() sets the executor
  std::filesystem::path chat_template;  // a Jinja file instead of the model's own template
  std::filesystem::path port_file;      // gets the port once the server listens
  server::ServerOptions server;
  std::stop_token stop = {};                       // ends the server
  std::function<void(const Json&)> on_ready = {};  // {"host", "port", "model", "context", …}
};

// Opens the model and serves it until a stop is requested. Throws what opening the model and
// Server::Server() throw.
void serve(const ServeOptions& options, Executor& executor);

}  // namespace hone::app
