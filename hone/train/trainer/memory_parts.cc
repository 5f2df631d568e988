// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/memory_parts.h"

#include <ATen/ATen.h>

#include <vector>

#include "hone/train/memory/device_memory.h"
#include "hone/train/memory/memory_meter.h"
#include "hone/train/trainer/probe_step.h"

namespace hone::trainer {
MemoryParts measure_memory(Task& task, optim::MultiTensorOptimizer& optimizer,
                           const std::vector<torch::Tensor>& batch, const ProbeOptions& options) {
  const memory::DeviceMeter meter(batch.front().device());
  TrainingSnapshot snapshot(task, optimizer);
  MemoryParts parts;
  try {
    probe_step(task, optimizer, batch, options);  // makes the state
    for (const CheckpointTensor& weight : task.weights()) {
      parts.weights += static_cast<Index>(weight.value.nbytes());
    }
    for (const optim::NamedState& entry : optimizer.export_state()) {
      Index& part = entry.name == "average" ? parts.averages : parts.state;
      if (entry.takes_memory()) part += static_cast<Index>(entry.value.nbytes());
    }
    hold_gradients(task, false);
    const Index without = meter.current();
    hold_gradients(task, true);
    const Index before = meter.current();
    parts.gradients = before - without;
    meter.reset_peak();
    probe_step(task, optimizer, batch, options, [&](memory::Phase phase) {
      if (phase == memory::Phase::Forward) parts.activations = meter.current() - before;
    });
    parts.workspace = meter.peak() - before - parts.activations;
  } catch (...) {
    snapshot.restore();
    throw;
  }
  snapshot.restore();
  return parts;
}

}  // namespace hone::trainer
