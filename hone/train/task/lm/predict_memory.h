// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/train/task/lm/lm_config.h"
#include "hone/train/trainer/memory_parts.h"

namespace hone::task {

// The memory of a step of this configuration on `batch` windows of `positions` tokens, by the f32
// kernels for CPUs. It follows from the shapes, except for the workspace of matrix products: two of
// them are run once.
trainer::MemoryParts predict_memory(const LmConfig& config, Index vocab_size, Index batch,
                                    Index positions);

}  // namespace hone::task
