// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/torch_runs.h"

namespace hone::cli {

void run_module_serve(const app::ServeModuleOptions& options) { app::serve_module(options); }

}  // namespace hone::cli
