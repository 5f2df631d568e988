// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"

namespace hone {

// The machine card of reports: CPU, instruction set, cores, quota, threads and hone's version.
Json machine_card(Executor& executor);
// Like machine_card(), without the number of threads.
Json describe_machine();

}  // namespace hone
