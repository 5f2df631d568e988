// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/trace_options.h"

#include "hone/cli/validators.h"

namespace hone::cli {

void add_trace_option(CLI::App& verb, Context& context) {
  verb.add_option("--trace", context.common.trace,
                  "Write a Chrome trace of operations, with times and sizes, to FILE")
      ->check(not_empty());
}

}  // namespace hone::cli
