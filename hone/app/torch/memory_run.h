// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/train/trainer/find_batch_size.h"
#include "hone/train/trainer/memory_parts.h"
#include "hone/train/trainer/trainer_config.h"

namespace hone::app {

template <class Config>
struct MemoryJob {
  Config config;
  int threads = 0;            // LibTorch threads; 0 means usable_cpus()
  bool search_batch = false;  // also search for the largest trainer.micro_batch
};

template <class Config>
std::optional<trainer::BatchSearchOptions> search_of(const MemoryJob<Config>& job) {
  return job.search_batch ? std::optional(trainer::BatchSearchOptions()) : std::nullopt;
}

// Memory use of real steps on the largest samples.
struct MemoryMeasurement {
  Index parameters = 0, micro_batch = 0;
  std::optional<trainer::MemoryParts> measured;  // nullopt if a step would not fit in memory
  Index resident = 0;                            // largest resident memory of the process
  std::optional<trainer::BatchSearch> search;
};
// Measures real steps. With `search`, also looks for the largest micro-batch.
MemoryMeasurement measure_run(trainer::Task& task, optim::MultiTensorOptimizer& optimizer,
                              const trainer::TrainerConfig& config,
                              std::optional<trainer::BatchSearchOptions> search);

Json to_json(const trainer::MemoryParts& parts);
// {"parameters", "micro_batch", "measured": {part: bytes, …} or null, "resident_bytes",
// "largest_micro_batch", "search_ends_there", "limit_bytes", "probes"}; the last four only with a
// search. "search_ends_there" means that larger sizes were not tried.
Json to_json(const MemoryMeasurement& result);

}  // namespace hone::app
