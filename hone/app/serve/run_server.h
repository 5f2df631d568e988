// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "hone/core/file/json_io.h"
#include "hone/server/server.h"

namespace hone::app {

// What serving takes, whatever kind the model is of.
struct ServeJob {
  std::filesystem::path model;
  std::string name;                 // of the model; empty: that of its file, folder or run
  std::filesystem::path port_file;  // gets the port once the server listens
  server::ServerOptions server;
  std::stop_token stop = {};  // ends the server
  // Called once the server listens, with {"host", "port", "model"} and facts about the model.
  std::function<void(const Json&)> on_ready = {};
};

// The name of the model, which clients see.
std::string served_name(const ServeJob& job);
// Serves until a stop is requested. Throws what server::Server() throws.
void run_server(const ServeJob& job, server::Service& service, const Json& facts);

}  // namespace hone::app
