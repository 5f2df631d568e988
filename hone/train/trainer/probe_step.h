// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "hone/train/memory/memory_meter.h"
#include "hone/train/random_state.h"
#include "hone/train/trainer/trainer.h"

namespace hone::trainer {

// Everything a training step changes: weights (with the buffers that the task names among them),
// gradients, optimizer state, random generators. Copies lie in CPU memory.
class TrainingSnapshot {
 public:
  TrainingSnapshot(Task& task, optim::MultiTensorOptimizer& optimizer);
  // Puts all of it back, bit for bit.
  void restore();
  // Weights and gradients only.
  void restore_weights();

 private:
  struct Weight {
    torch::Tensor tensor, copy, grad;  // grad: the handle itself, undefined where there was none
  };
  optim::MultiTensorOptimizer& optimizer_;
  std::vector<Weight> weights_;
  std::vector<optim::NamedState> state_;
  std::optional<RandomState> random_;
};

// `size` rows of each tensor: its own, over and over. Error{InvalidArgument} without rows.
std::vector<torch::Tensor> replicate(const std::vector<torch::Tensor>& sample, Index size);

// Bytes of weights and state that no MemoryMeter counts, because they are older than the first.
Index uncounted_bytes(Task& task, const optim::MultiTensorOptimizer& optimizer);

// Zeros as gradients of all weights, or none.
void hold_gradients(Task& task, bool hold);

// Forward, backward and a step on this batch, with nothing left out; allocations belong to their
// phases. `between(phase)` is called behind each, while what it made is alive.
void probe_step(Task& task, optim::MultiTensorOptimizer& optimizer,
                const std::vector<torch::Tensor>& batch,
                const std::function<void(memory::Phase)>& between = {});

}  // namespace hone::trainer
