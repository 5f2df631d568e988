// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/memory_budget.h"

#include <algorithm>
#include <exception>
#include <string>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/process_memory.h"
#include "hone/core/text_format.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/random_state.h"
#include "hone/train/trainer/probe_step.h"
#include "hone/train/trainer/trainer.h"

namespace hone::trainer {
namespace {

// In the units of trainer.max_memory_mb.
std::string mebibytes(Index bytes) { return format_bytes(bytes, ByteUnits::Binary); }

}  // namespace

Json MemoryActions::to_json() const {
  return {{"released_caches", released_caches}, {"recomputes", recomputes}, {"splits", splits}};
}

MemoryActions MemoryActions::from_json(const Json& json) {
  return {.released_caches = json.at("released_caches").get<bool>(),
          .recomputes = json.at("recomputes").get<bool>(),
          .splits = json.at("splits").get<Index>()};
}

Index MemoryActions::apply(Task& task, Index accumulation_steps) const {
  if (recomputes) task.recompute_activations();
  for (Index i = 0; i < splits; ++i) accumulation_steps = task.halve_micro_batches();
  return accumulation_steps;
}

bool MemoryBudget::fits(const std::function<void()>& work) const {
  try {
    work();
  } catch (...) {
    if (!memory::is_out_of_memory(std::current_exception())) throw;
    return false;
  }
  return device_.is_cpu() || meter_->peak() <= max_bytes_;
}

MemoryBudget::MemoryBudget(Index max_bytes, c10::Device device, Task& task,
                           optim::MultiTensorOptimizer& optimizer, MemoryActions& actions,
                           Index& accumulation_steps)
    : max_bytes_(max_bytes),
      device_(device),
      task_(task),
      optimizer_(optimizer),
      actions_(actions),
      accumulation_steps_(accumulation_steps) {
  if (max_bytes_ == 0) return;
  meter_.emplace(device);
  set_limit();
}

void MemoryBudget::set_limit() {
  if (!device_.is_cpu()) return;
  const Index uncounted = uncounted_bytes(task_, optimizer_);
  limit_.reset();
  limit_.emplace(std::max<Index>(0, max_bytes_ - uncounted));
}

std::string MemoryBudget::use() const {
  return concat(mebibytes(meter_->peak()), " of tensors at most, ", mebibytes(resident_bytes()),
                " in RAM");
}

void MemoryBudget::give_up() const {
  Index fixed = 0;
  for (const CheckpointTensor& weight : task_.weights()) {
    fixed += static_cast<Index>(weight.value.nbytes());
  }
  fail(ErrorCategory::Resource, "trainer.max_memory_mb", "enough for a step on the smallest batch",
       concat(mebibytes(max_bytes_), ", of which the weights alone take ", mebibytes(fixed)));
}

std::string MemoryBudget::act() {
  if (!actions_.released_caches) {
    actions_.released_caches = true;
    memory::release_caches();
    return "freed memory is handed back";
  }
  if (!actions_.recomputes) {
    actions_.recomputes = true;
    if (task_.recompute_activations()) return "layers are computed again in the backward pass";
  }
  const Index more = task_.halve_micro_batches();
  if (more == 0) give_up();
  accumulation_steps_ = more;
  ++actions_.splits;
  return concat("micro-batches are halved, ", more, " a step");
}

void MemoryBudget::run(Index step, const std::function<void()>& work) {
  if (!meter_) return work();
  const RandomState random(device_);
  std::string action;
  while (true) {
    meter_->reset_peak();
    if (fits(work)) break;
    if (!action.empty()) log_info(concat("memory: then ", use()));
    hold_gradients(task_, false);
    abandoned_.release();
    random.restore();
    const std::string before = use();
    action = act();
    log_info(concat("memory: step ", step + 1, " would exceed ", mebibytes(max_bytes_), " (",
                    before, "): ", action));
  }
  if (!action.empty()) log_info(concat("memory: step ", step + 1, " fits now, with ", use()));
}

void MemoryBudget::run_optimizer(const std::function<void()>& work) {
  if (!meter_) return work();
  if (!fits(work)) give_up();
  if (knows_state_) return;
  set_limit();  // the optimizer copies small tensors into its own memory
  knows_state_ = true;
}

void MemoryBudget::run_validation(const std::function<void()>& work) {
  if (!meter_) return work();
  while (!fits(work)) {
    if (!task_.halve_validation_batches()) give_up();
    log_info(concat("memory: validation would exceed ", mebibytes(max_bytes_),
                    ": its batches are halved"));
  }
}

}  // namespace hone::trainer
