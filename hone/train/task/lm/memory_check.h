// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/train/task/lm/lm_config.h"
#include "hone/train/trainer/memory_parts.h"

namespace hone::task {

// The memory that check_memory() compares, for windows of `positions` tokens.
struct StepMemory {
  trainer::MemoryParts parts;   // predict_memory() with the configuration's micro-batch
  Index total = 0, needed = 0;  // with averaged weights; limited to trainer.max_memory_mb
  Index fixed = 0;              // part that does not depend on the micro-batch
  Index free = 0;               // bytes that this process can still allocate
  bool fits() const { return needed <= free; }
  std::string text() const;  // "a step takes …", for the log
};
StepMemory step_memory(const LmConfig& config, const model_io::Architecture& model, Index positions,
                       Index free);

// Checks memory before weights are allocated. Throws Error{Resource} if a step does not fit in the
// free memory. The error names the key to change and a value with which the step fits.
void check_memory(const LmConfig& config, const model_io::Architecture& model, Index positions,
                  Index free);

// The largest trainer.micro_batch with which a step fits; 0: none.
Index largest_micro_batch(const LmConfig& config, const model_io::Architecture& model,
                          Index positions, Index free);

}  // namespace hone::task
