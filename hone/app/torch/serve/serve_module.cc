// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/serve_module.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "hone/app/torch/serve/module_service.h"
#include "hone/app/torch/train_run.h"
#include "hone/core/log.h"
#include "hone/train/memory/device_memory.h"

namespace hone::app {

void serve_module(const ServeModuleOptions& options) {
  memory::run_in_memory("serve", [&] {
    prepare_libtorch(options.threads);
    ServedModule module = open_served_module(options.model);
    warm_up(module);
    const bool tests_shapes = module.shape.empty();
    const Json facts = {{"kind", module.kind}, {"classes", module.classes.size()}};
    ModuleService service(std::move(module), served_name(options),
                          {.max_batch = options.max_batch,
                           .max_wait_ms = options.max_wait_ms,
                           .max_latency_ms = options.max_latency_ms,
                           .max_queue = options.max_queue,
                           .tests_shapes = tests_shapes});
    run_server(options, service, facts);
    for (int i = 0; i < 100 && !service.is_idle(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (service.is_idle()) return;
    // Nothing can interrupt a forward pass.
    log_error("[serve] A forward pass has not ended. The process ends without it.");
    std::fflush(nullptr);
    std::_Exit(1);
  });
}

}  // namespace hone::app
