// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_lm.h"

#include <ATen/Parallel.h>
#include <c10/core/Device.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/memory_check.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {

namespace {

MemoryLmResult run_job(const MemoryLmJob& job) {
  task::LmConfig config = job.config;
  const std::optional<task::InitialModel> initial = task::take_initial_model(config);
  check_config(config);
  at::set_num_threads(job.threads > 0 ? job.threads : usable_cpus());
  const task::InitialModel* const from = initial ? &*initial : nullptr;
  task::LmPlan plan = task::plan_lm(config, from);
  MemoryLmResult result;
  result.positions = plan.windows.longest_length();
  std::optional<trainer::BatchSearchOptions> search = search_of(job);
  if (trainer::device_of(config.trainer).is_cpu()) {
    const Index free = memory::free_bytes(at::kCPU);
    const auto memory = task::step_memory(config, plan.architecture, result.positions, free);
    log_info(concat("predicted: ", memory.text()));
    result.predicted = memory.parts;
    const Index most = task::largest_micro_batch(config, plan.architecture, result.positions, free);
    if (!memory.fits() && !(search && most > 0)) {
      result.parameters = plan.architecture.parameters();
      result.micro_batch = config.trainer.micro_batch;
      return result;
    }
    if (!memory.fits()) config.trainer.micro_batch = most;
    if (search) search->start = std::clamp(most, search->low, search->high);
    log_info("real steps are measured now");
  }
  const memory::MemoryMeter meter;  // before the model, so that its weights count
  task::LmSetup setup = task::set_up_lm(config, std::move(plan), from);
  config.optim = trainer::apply_preset(config.optim, config.given, *setup.model);
  const auto optimizer = task::make_optimizer(config, *setup.model);
  static_cast<MemoryMeasurement&>(result) =
      measure_run(setup.task, *optimizer, config.trainer, search);
  return result;
}

}  // namespace

MemoryLmResult memory_lm(const MemoryLmJob& job) {
  return memory::run_in_memory("memory report", [&] { return run_job(job); });
}

Json to_json(const MemoryLmResult& result) {
  Json out = to_json(static_cast<const MemoryMeasurement&>(result));
  out["positions"] = result.positions;
  if (result.predicted) out["predicted"] = to_json(*result.predicted);
  return out;
}

}  // namespace hone::app
