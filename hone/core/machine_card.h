// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/executor.h"
#include "hone/core/json_io.h"

namespace hone {

// CPU, instruction set, cores, quota, threads, hone version: the report's machine card.
Json machine_card(Executor& executor);
// The same without the number of threads.
Json describe_machine();

}  // namespace hone
