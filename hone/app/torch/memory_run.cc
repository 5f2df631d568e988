// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_run.h"

#include <vector>

#include "hone/train/memory/device_memory.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::app {

MemoryMeasurement measure_run(trainer::Task& task, optim::MultiTensorOptimizer& optimizer,
                              const trainer::TrainerConfig& config, bool search_batch) {
  const std::vector<torch::Tensor> sample = task.largest_sample();
  MemoryMeasurement result;
  for (const trainer::CheckpointTensor& weight : task.weights()) {
    if (weight.value.requires_grad()) result.parameters += weight.value.numel();
  }
  result.micro_batch = config.micro_batch;
  result.measured =
      trainer::measure_memory(task, optimizer, trainer::replicate(sample, result.micro_batch));
  result.resident = memory::resident_bytes();
  if (search_batch) {
    trainer::BatchSearchOptions options{.accumulates = config.accumulation_steps > 1};
    options.budget_bytes = trainer::max_memory_bytes(config);
    if (options.budget_bytes > 0) options.limit = 1;
    result.search = trainer::find_batch_size(task, optimizer, sample, options);
  }
  return result;
}

Json to_json(const trainer::MemoryParts& parts) {
  return {{"weights", parts.weights},     {"gradients", parts.gradients},
          {"state", parts.state},         {"activations", parts.activations},
          {"workspace", parts.workspace}, {"total", parts.total()}};
}

Json to_json(const MemoryMeasurement& result) {
  Json out = {{"parameters", result.parameters},
              {"micro_batch", result.micro_batch},
              {"measured", to_json(result.measured)},
              {"resident_bytes", result.resident}};
  if (!result.search) return out;
  out["largest_micro_batch"] = result.search->batch;
  out["search_ends_there"] = result.search->at_end;
  out["limit_bytes"] = result.search->limit_bytes;
  for (const trainer::BatchProbe& probe : result.search->probes) {
    out["probes"].push_back(
        {{"micro_batch", probe.size}, {"fits", probe.fits}, {"peak_bytes", probe.peak_bytes}});
  }
  return out;
}

}  // namespace hone::app
