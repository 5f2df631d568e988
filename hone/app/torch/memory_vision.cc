// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_vision.h"

#include <ATen/Parallel.h>

#include "hone/core/machine/cpu_info.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/task/vision/vision_setup.h"
#include "hone/train/trainer/make_optimizer.h"

namespace hone::app {

namespace {

MemoryMeasurement run_job(const MemoryVisionJob& job) {
  task::VisionConfig config = task::apply_preset(job.config);
  check_config(config);
  at::set_num_threads(job.threads > 0 ? job.threads : usable_cpus());
  const memory::MemoryMeter meter;  // before the model, so that its weights count
  const task::VisionSetup setup = task::set_up_vision(config);
  const torch::nn::Module& module = setup.task->objective().module();
  config.optim = trainer::apply_preset(config.optim, config.given, module);
  const auto optimizer = task::make_optimizer(config, setup);
  return measure_run(*setup.task, *optimizer, config.trainer, search_of(job));
}

}  // namespace

MemoryMeasurement memory_vision(const MemoryVisionJob& job) {
  return memory::run_in_memory("memory report", [&] { return run_job(job); });
}

}  // namespace hone::app
