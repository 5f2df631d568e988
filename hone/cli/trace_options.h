// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/cli/command.h"

namespace hone::cli {

// --trace FILE, for every verb that computes.
void add_trace_option(CLI::App& verb, Context& context);

}  // namespace hone::cli
