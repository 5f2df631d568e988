// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_lm.h"

#include <ATen/Parallel.h>

#include "hone/core/cpu_info.h"
#include "hone/train/memory/device_memory.h"
#include "hone/train/trainer/lm_setup.h"
#include "hone/train/trainer/make_optimizer.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::app {
namespace {

Json to_json(const trainer::MemoryParts& parts) {
  return {{"weights", parts.weights},     {"gradients", parts.gradients},
          {"state", parts.state},         {"activations", parts.activations},
          {"workspace", parts.workspace}, {"total", parts.total()}};
}

}  // namespace

MemoryLmResult memory_lm(const MemoryLmJob& job) {
  trainer::LmConfig config = job.config;
  trainer::check_config(config);
  at::set_num_threads(job.threads > 0 ? job.threads : usable_cpus());
  const memory::MemoryMeter meter;  // before the model, so that its weights count
  trainer::LmSetup setup = trainer::set_up_lm(config);
  const auto optimizer = trainer::make_optimizer(config, *setup.model);
  const std::vector<torch::Tensor> sample = setup.task.largest_sample();
  MemoryLmResult result;
  result.parameters = setup.model->architecture().parameters();
  result.micro_batch = config.trainer.micro_batch;
  result.positions = sample[0].size(1);
  result.predicted = trainer::predict_memory(config, setup.model->architecture().vocab_size,
                                             result.micro_batch, result.positions);
  result.measured = trainer::measure_memory(setup.task, *optimizer,
                                            trainer::replicate(sample, result.micro_batch));
  result.resident = memory::resident_bytes();
  if (job.search_batch) {
    trainer::BatchSearchOptions options{.accumulates = config.trainer.accumulation_steps > 1};
    if (config.trainer.max_memory_mb > 0) {
      options.limit = 1;
      options.budget_bytes = config.trainer.max_memory_mb << 20;
    }
    result.search = trainer::find_batch_size(setup.task, *optimizer, sample, options);
  }
  return result;
}

Json to_json(const MemoryLmResult& result) {
  Json out = {{"parameters", result.parameters},      {"micro_batch", result.micro_batch},
              {"positions", result.positions},        {"predicted", to_json(result.predicted)},
              {"measured", to_json(result.measured)}, {"resident_bytes", result.resident}};
  if (!result.search) return out;
  out["largest_micro_batch"] = result.search->batch;
  out["limit_bytes"] = result.search->limit_bytes;
  for (const trainer::BatchProbe& probe : result.search->probes) {
    out["probes"].push_back(
        {{"micro_batch", probe.size}, {"fits", probe.fits}, {"peak_bytes", probe.peak_bytes}});
  }
  return out;
}

}  // namespace hone::app
