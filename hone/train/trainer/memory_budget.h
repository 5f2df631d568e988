// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "hone/core/file/json_io.h"
#include "hone/train/memory/abandoned_backward.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::trainer {

class Task;

// Measures taken so far to stay below a limit; part of a run's state.
struct MemoryActions {
  bool released_caches = false, recomputes = false;
  Index splits = 0;  // times that micro-batches were halved

  Json to_json() const;
  static MemoryActions from_json(const Json& json);
  // Applies these measures to a new task. Returns the resulting number of micro-batches per step.
  Index apply(Task& task, Index accumulation_steps) const;
};

// Keeps the tensors of a training run on its device below a limit. On the CPU, an allocation that
// would exceed it throws; on CUDA, the memory that the allocator reserved in a step counts.
// Then the partial gradients are dropped, and the micro-batches of the step run again after the
// next measure: return freed memory to the system (once), recompute layers in the backward pass,
// halve the micro-batches (with the same samples in the same order). Logs each measure with the
// bytes before and after. Has no effect without a limit.
class MemoryBudget {
 public:
  // max_bytes counts tensors, including weights; 0: no limit. The arguments must outlive this
  // object. Throws Error{Unsupported} for a limit on a device whose allocator does not count.
  MemoryBudget(Index max_bytes, c10::Device device, Task& task,
               optim::MultiTensorOptimizer& optimizer, MemoryActions& actions,
               Index& accumulation_steps);

  // Runs the forward and backward passes of a step; `work` may run several times. Throws
  // Error{Resource} when no measure is left.
  void run(Index step, const std::function<void()>& work);
  // Runs the optimizer's step, for which there is no measure: throws Error{Resource} if memory runs
  // out.
  void run_optimizer(const std::function<void()>& work);
  // Runs a validation. Halves its batches as long as that helps.
  void run_validation(const std::function<void()>& work);

 private:
  // Takes the next measure and returns its description. Throws Error{Resource} when none is left.
  std::string act();
  [[noreturn]] void give_up() const;
  void set_limit();
  std::string use() const;

  // Runs `work`; false when memory ran out.
  bool fits(const std::function<void()>& work) const;

  Index max_bytes_;
  c10::Device device_;
  Task& task_;
  optim::MultiTensorOptimizer& optimizer_;
  MemoryActions& actions_;
  Index& accumulation_steps_;
  memory::AbandonedBackward abandoned_;
  std::optional<memory::DeviceMeter> meter_;
  std::optional<memory::MemoryLimit> limit_;
  bool knows_state_ = false;
};

}  // namespace hone::trainer
