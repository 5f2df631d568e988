// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/index.h"
#include "hone/train/trainer/probe_options.h"
#include "hone/train/trainer/task_fwd.h"

namespace hone::trainer {

// Bytes of tensors in a training step in which all gradients exist throughout, as in the later
// micro-batches of an accumulation. Without accumulation, the peak is lower by up to `gradients`.
struct MemoryParts {
  Index weights = 0, gradients = 0, state = 0;
  Index averages = 0;     // moving averages of the weights
  Index activations = 0;  // kept by the forward pass for the backward pass
  Index workspace = 0;    // the peak above all these
  Index total() const { return weights + gradients + state + averages + activations + workspace; }
};

// Measures real steps on this batch, which are undone.
MemoryParts measure_memory(Task& task, optim::MultiTensorOptimizer& optimizer,
                           const std::vector<at::Tensor>& batch, const ProbeOptions& options);

}  // namespace hone::trainer
