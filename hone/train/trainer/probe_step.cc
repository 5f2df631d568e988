// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/probe_step.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"

namespace hone::trainer {

using memory::Phase;
using memory::PhaseScope;
using torch::Tensor;

TrainingSnapshot::TrainingSnapshot(Task& task, optim::MultiTensorOptimizer& optimizer)
    : optimizer_(optimizer) {
  std::vector<Tensor> tensors;
  for (const CheckpointTensor& weight : task.weights()) {
    const Tensor& tensor = weight.value;
    weights_.push_back({tensor, tensor.detach().to(at::kCPU, tensor.scalar_type(), false, true),
                        tensor.requires_grad() ? tensor.grad() : Tensor()});
    tensors.push_back(tensor);
  }
  for (optim::NamedState& entry : optimizer.export_state()) {
    entry.value = entry.value.to(at::kCPU, entry.value.scalar_type(), false, true);
    state_.push_back(std::move(entry));
  }
  random_.emplace(tensors);
}

void TrainingSnapshot::restore_weights() {
  for (Weight& weight : weights_) {
    weight.tensor.detach().copy_(weight.copy);
    if (weight.tensor.requires_grad()) weight.tensor.mutable_grad() = weight.grad;
  }
}

void TrainingSnapshot::restore() {
  restore_weights();
  optimizer_.import_state(state_);
  random_->restore();
}

std::vector<Tensor> replicate(const std::vector<Tensor>& sample, Index size) {
  std::vector<Tensor> batch;
  for (const Tensor& tensor : sample) {
    HONE_CHECK(tensor.dim() > 0 && tensor.size(0) > 0, "replicate", "at least one sample", "none");
    const Tensor rows = at::arange(size, tensor.options().dtype(at::kLong));
    batch.push_back(tensor.index_select(0, rows.remainder(tensor.size(0))));
  }
  return batch;
}

Index uncounted_bytes(Task& task, const optim::MultiTensorOptimizer& optimizer) {
  Index bytes = 0;
  const auto add = [&bytes](const Tensor& tensor) {
    const bool counted = !tensor.is_cpu() || memory::MemoryMeter::counts(tensor);
    if (!counted) bytes += static_cast<Index>(tensor.nbytes());
  };
  for (const CheckpointTensor& weight : task.weights()) add(weight.value);
  for (const optim::NamedState& entry : optimizer.export_state()) {
    if (entry.takes_memory()) add(entry.value);
  }
  return bytes;
}

void hold_gradients(Task& task, bool hold) {
  for (const CheckpointTensor& weight : task.weights()) {
    if (!weight.value.requires_grad()) continue;
    weight.value.mutable_grad() = hold ? at::zeros_like(weight.value) : Tensor();
  }
}

static amp::AutocastGuard autocast_of(const ProbeOptions& options, c10::Device device) {
  amp::AmpOptions amp = amp::amp_options(options.amp);
  amp.device = device.type();
  return amp::MixedPrecision(amp).autocast();
}

void probe_step(Task& task, optim::MultiTensorOptimizer& optimizer,
                const std::vector<Tensor>& batch, const ProbeOptions& options,
                const std::function<void(Phase)>& between) {
  const auto tell = [&between](Phase phase) {
    if (between) between(phase);
  };
  {
    LossSum loss;
    {
      const PhaseScope forward(Phase::Forward);
      const amp::AutocastGuard autocast = autocast_of(options, batch.front().device());
      loss = task.loss_of(batch);
    }
    tell(Phase::Forward);
    const PhaseScope backward(Phase::Backward);
    (loss.sum / loss.weight).backward();
  }
  tell(Phase::Backward);
  const PhaseScope step(Phase::Step);
  optimizer.step_with({.skip_nonfinite = true, .ema_decay = options.ema_decay});
  tell(Phase::Step);
}

}  // namespace hone::trainer
