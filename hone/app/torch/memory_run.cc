// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/memory_run.h"

#include <vector>

#include "hone/core/machine/process_memory.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::app {

MemoryMeasurement measure_run(trainer::Task& task, optim::MultiTensorOptimizer& optimizer,
                              const trainer::TrainerConfig& config,
                              std::optional<trainer::BatchSearchOptions> search) {
  const std::vector<torch::Tensor> sample = task.largest_sample();
  MemoryMeasurement result;
  for (const trainer::CheckpointTensor& weight : task.weights()) {
    if (weight.value.requires_grad()) result.parameters += weight.value.numel();
  }
  result.micro_batch = config.micro_batch;
  const trainer::ProbeOptions probe{.amp = config.amp, .ema_decay = config.ema_decay};
  result.measured = trainer::measure_memory(task, optimizer,
                                            trainer::replicate(sample, result.micro_batch), probe);
  result.resident = peak_resident_bytes();
  if (search) {
    search->probe = probe;
    search->accumulates = config.accumulation_steps > 1;
    search->budget_bytes = trainer::max_memory_bytes(config);
    if (search->budget_bytes > 0) search->limit = 1;
    result.search = trainer::find_batch_size(task, optimizer, sample, *search);
  }
  return result;
}

Json to_json(const trainer::MemoryParts& parts) {
  return {{"weights", parts.weights},
          {"gradients", parts.gradients},
          {"state", parts.state},
          {"averages", parts.averages},
          {"activations", parts.activations},
          {"workspace", parts.workspace},
          {"total", parts.total()}};
}

Json to_json(const MemoryMeasurement& result) {
  Json out = {{"parameters", result.parameters},
              {"micro_batch", result.micro_batch},
              {"measured", result.measured ? to_json(*result.measured) : Json()},
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
