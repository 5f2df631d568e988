// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_lm.h"

#include <ATen/Parallel.h>
#include <c10/core/Device.h>

#include <optional>

#include "hone/core/cpu_info.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/task/lm/factored_model.h"
#include "hone/train/task/lm/lm_setup.h"
#include "hone/train/task/lm/predict_memory.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {

namespace {

MemoryLmResult run_job(const MemoryLmJob& job) {
  task::LmConfig config = job.config;
  const std::optional<task::InitialModel> initial = task::take_initial_model(config);
  check_config(config);
  at::set_num_threads(job.threads > 0 ? job.threads : usable_cpus());
  const memory::MemoryMeter meter;  // before the model, so that its weights count
  task::LmSetup setup = task::set_up_lm(config, initial ? &*initial : nullptr);
  config.optim = trainer::apply_preset(config.optim, config.given, *setup.model);
  const auto optimizer = task::make_optimizer(config, *setup.model);
  MemoryLmResult result;
  result.positions = setup.task.largest_sample()[0].size(1);
  if (trainer::device_of(config.trainer).is_cpu()) {
    result.predicted = task::predict_memory(config, task::architecture_of(*setup.model),
                                            config.trainer.micro_batch, result.positions);
  }
  static_cast<MemoryMeasurement&>(result) =
      measure_run(setup.task, *optimizer, config.trainer, job.search_batch);
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
