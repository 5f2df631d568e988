// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "hone/train/memory/memory_meter.h"
#include "hone/train/random_state.h"
#include "hone/train/trainer/probe_options.h"
#include "hone/train/trainer/trainer.h"

namespace hone::trainer {

// A copy in CPU memory of everything that a training step changes: weights (including the buffers
// that the task lists with them), gradients, optimizer state, random generators.
class TrainingSnapshot {
 public:
  TrainingSnapshot(Task& task, optim::MultiTensorOptimizer& optimizer);
  // Restores all of it, bit for bit.
  void restore();
  // Weights and gradients only.
  void restore_weights();

 private:
  struct Weight {
    torch::Tensor tensor, copy, grad;  // grad: the original tensor, or undefined
  };
  optim::MultiTensorOptimizer& optimizer_;
  std::vector<Weight> weights_;
  std::vector<optim::NamedState> state_;
  std::optional<RandomState> random_;
};

// Repeats the rows of each tensor to `size` rows. Throws Error{InvalidArgument} if a tensor has
// none.
std::vector<torch::Tensor> replicate(const std::vector<torch::Tensor>& sample, Index size);

// Bytes of weights and state that no MemoryMeter counts, because they were allocated before the
// first one.
Index uncounted_bytes(Task& task, const optim::MultiTensorOptimizer& optimizer);

// Sets the gradients of all weights to zeros, or removes them.
void hold_gradients(Task& task, bool hold);

// Runs forward, backward and a full step on this batch, with the precision and the moving averages
// of the run. Attributes allocations to their phases. Calls `between(phase)` after each phase,
// while its tensors still exist.
void probe_step(Task& task, optim::MultiTensorOptimizer& optimizer,
                const std::vector<torch::Tensor>& batch, const ProbeOptions& options,
                const std::function<void(memory::Phase)>& between = {});

}  // namespace hone::trainer
