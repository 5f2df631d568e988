// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/app/serve/run_server.h"
#include "hone/core/thread/executor.h"
#include "hone/infer/engine.h"

namespace hone::app {

struct ServeOptions : ServeJob {
  infer::EngineOptions engine;          // serve() sets the executor
  std::filesystem::path chat_template;  // a Jinja file instead of the model's own template
};

// Opens a language model and serves it. Throws what opening the model and run_server() throw.
void serve(const ServeOptions& options, Executor& executor);

}  // namespace hone::app
