// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "hone/core/json_io.h"
#include "hone/train/memory/abandoned_backward.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::trainer {

class Task;

// What has been done to stay below a limit; part of a run's state.
struct MemoryActions {
  bool released_caches = false, recomputes = false;
  Index splits = 0;  // times that micro-batches were halved

  Json to_json() const;
  static MemoryActions from_json(const Json& json);
  // Does to a fresh task what was done; the micro-batches per step from then on.
  Index apply(Task& task, Index accumulation_steps) const;
};

// Holds the CPU tensors of a training run below a limit: an allocation that would pass it throws,
// the gradients begun are dropped, and the micro-batches of the step run again after the next of
// these: freed memory is handed back (once), layers are computed again in the backward pass, micro-
// batches are halved (the step's samples and their order stay). Each is logged with the bytes
// before and after. Without a limit nothing of this happens.
class MemoryBudget {
 public:
  // max_bytes of tensors, weights included; 0: no limit. All of them outlive it.
  MemoryBudget(Index max_bytes, Task& task, optim::MultiTensorOptimizer& optimizer,
               MemoryActions& actions, Index& accumulation_steps);

  // Forward and backward passes of a step; `work` may run several times. Error{Resource} when
  // nothing is left to do.
  void run(Index step, const std::function<void()>& work);
  // The optimizer's step, for which nothing can be done: Error{Resource}.
  void run_optimizer(const std::function<void()>& work);
  // Validation, whose batches are halved as long as that helps.
  void run_validation(const std::function<void()>& work);

 private:
  // What is done next, in words; Error{Resource} when there is nothing.
  std::string act();
  [[noreturn]] void give_up() const;
  void set_limit();
  std::string use() const;

  Index max_bytes_;
  Task& task_;
  optim::MultiTensorOptimizer& optimizer_;
  MemoryActions& actions_;
  Index& accumulation_steps_;
  memory::AbandonedBackward abandoned_;
  std::optional<memory::MemoryMeter> meter_;
  std::optional<memory::MemoryLimit> limit_;
  bool knows_state_ = false;
};

}  // namespace hone::trainer
