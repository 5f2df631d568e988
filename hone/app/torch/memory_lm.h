// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "hone/core/json_io.h"
#include "hone/train/trainer/find_batch_size.h"
#include "hone/train/trainer/memory_parts.h"

namespace hone::app {

struct MemoryLmJob {
  trainer::LmConfig config;
  int threads = 0;            // of LibTorch; 0: usable_cpus()
  bool search_batch = false;  // also look for the largest trainer.micro_batch
};

struct MemoryLmResult {
  Index parameters = 0, micro_batch = 0, positions = 0;
  trainer::MemoryParts predicted, measured;
  Index resident = 0;  // of the process, in RAM, behind the measured steps
  std::optional<trainer::BatchSearch> search;
};

// The memory of a training step of this configuration, on the longest windows of its text, by
// formula and by real steps; trains nothing and writes nothing.
MemoryLmResult memory_lm(const MemoryLmJob& job);

// {"parameters", "micro_batch", "positions", "predicted": {part: bytes, …}, "measured",
// "resident_bytes", "largest_micro_batch", "limit_bytes", "probes"}; the last three with a search.
Json to_json(const MemoryLmResult& result);

}  // namespace hone::app
