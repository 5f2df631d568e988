// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hone/core/file/json_io.h"
#include "hone/core/machine/measurer.h"
#include "hone/core/thread/executor.h"

namespace hone::app {

// Describes this machine: the machine card and
//   memory_gb_per_s, memory_copy_gb_per_s, peak_gflops   null unless `measure`
//   torch   null in a build without LibTorch, else {version, program: path of hone-torch or null}
//   cuda    {built, driver, runtime, reason, devices[]{name, memory_bytes, multiprocessors,
//           compute_capability, copy_gb_per_s (null unless `measure`)}}
Json diagnose(Executor& executor, Measurer& measurer, bool measure);

// The same as readable text, one fact per line.
std::string describe_diagnosis(const Json& diagnosis);

}  // namespace hone::app
