// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/serve/run_server.h"
#include "hone/core/index.h"

namespace hone::app {

struct ServeModuleOptions : ServeJob {
  // As in nn::ModuleServerOptions.
  Index max_batch = 32, max_queue = 1024;
  double max_wait_ms = 2, max_latency_ms = 0;
  int threads = 0;  // LibTorch threads; 0 means usable_cpus()
};

// Opens a classifier of `hone train vision` or a TorchScript file and serves it. Throws what
// open_served_module() and run_server() throw.
void serve_module(const ServeModuleOptions& options);

}  // namespace hone::app
