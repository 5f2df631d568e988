// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "hone/app/torch/memory_run.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::app {

using MemoryLmJob = MemoryJob<task::LmConfig>;

struct MemoryLmResult : MemoryMeasurement {
  Index positions = 0;
  std::optional<trainer::MemoryParts> predicted;  // CPU only
};

// Measures the memory of a training step of this configuration on the longest windows of its text.
// Logs a prediction first and then, if a step fits in memory, runs real steps. Trains and writes
// nothing. Throws Error{Unsupported} for a device whose memory DeviceMeter does not count.
MemoryLmResult memory_lm(const MemoryLmJob& job);

// The fields of a MemoryMeasurement, "positions" and, if there is one, "predicted": {part: bytes,
// …}.
Json to_json(const MemoryLmResult& result);

}  // namespace hone::app
