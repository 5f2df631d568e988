// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/averaged_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::optim {

double warmed_ema_decay(double decay, Index steps) {
  const auto t = static_cast<double>(steps);
  return std::min(decay, (1 + t) / (10 + t));
}

AveragedWeights::AveragedWeights(MultiTensorOptimizer& optimizer,
                                 std::span<const AveragedBuffer> buffers)
    : averages_(optimizer.averages()) {
  for (const auto& group : optimizer.param_groups()) {
    parameters_.insert(parameters_.end(), group.params().begin(), group.params().end());
  }
  for (const AveragedBuffer& one : buffers) {
    parameters_.push_back(one.buffer);
    averages_.push_back(one.average);
  }
  aside_.resize(parameters_.size());
  swap();
}

AveragedWeights::~AveragedWeights() {
  try {
    swap();
  } catch (const std::exception& error) {
    log_error(concat("weights were changed beside their averages, and stay: ", error.what()));
  }
}

// Averages are fp32: those of narrower parameters keep their bits, and the parameters are aside.
void AveragedWeights::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!averages_[i].defined()) continue;
    const torch::Tensor parameter = parameters_[i].detach();
    const bool is_narrow = parameter.scalar_type() != averages_[i].scalar_type();
    if (is_narrow && aside_[i].defined()) {
      parameter.copy_(aside_[i]);
      continue;
    }
    torch::Tensor kept = parameter.clone();
    parameter.copy_(averages_[i]);
    is_narrow ? std::swap(aside_[i], kept) : static_cast<void>(averages_[i].copy_(kept));
  }
}

}  // namespace hone::optim
