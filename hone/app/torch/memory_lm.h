// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/torch/memory_run.h"
#include "hone/train/task/lm/lm_config.h"

namespace hone::app {

using MemoryLmJob = MemoryJob<task::LmConfig>;

struct MemoryLmResult : MemoryMeasurement {
  Index positions = 0;
  trainer::MemoryParts predicted;
};

// Determines the memory of a training step of this configuration on the longest windows of its
// text, by prediction and by real steps. Neither trains nor writes anything.
MemoryLmResult memory_lm(const MemoryLmJob& job);

// The fields of a MemoryMeasurement, and "positions", "predicted": {part: bytes, …}.
Json to_json(const MemoryLmResult& result);

}  // namespace hone::app
