// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/serve/serve_module.h"

#include <utility>

#include "hone/app/torch/serve/module_service.h"
#include "hone/app/torch/train_run.h"
#include "hone/train/memory/device_memory.h"

namespace hone::app {

void serve_module(const ServeModuleOptions& options) {
  memory::run_in_memory("serve", [&] {
    prepare_libtorch(options.threads);
    ServedModule module = open_served_module(options.model);
    const Json facts = {{"kind", module.kind}, {"classes", module.classes.size()}};
    ModuleService service(std::move(module), served_name(options),
                          {.max_batch = options.max_batch,
                           .max_wait_ms = options.max_wait_ms,
                           .max_latency_ms = options.max_latency_ms,
                           .max_queue = options.max_queue});
    run_server(options, service, facts);
  });
}

}  // namespace hone::app
