// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/train/task/lm/lm_config.h"
#include "hone/train/trainer/memory_parts.h"

namespace hone::task {

// Predicts the memory of a step of this configuration with a model of this architecture on `batch`
// windows of `positions` tokens, by the f32 kernels for CPUs. Uses only the shapes. Does not
// include the padding of the rank of factored layers.
trainer::MemoryParts predict_memory(const LmConfig& config, const model_io::Architecture& model,
                                    Index batch, Index positions);

}  // namespace hone::task
