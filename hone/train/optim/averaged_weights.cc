// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/averaged_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace hone::optim {

double warmed_ema_decay(double decay, Index steps) {
  const auto t = static_cast<double>(steps);
  return std::min(decay, (1 + t) / (10 + t));
}

AveragedWeights::AveragedWeights(MultiTensorOptimizer& optimizer)
    : averages_(optimizer.averages()) {
  for (const auto& group : optimizer.param_groups()) {
    parameters_.insert(parameters_.end(), group.params().begin(), group.params().end());
  }
  swap();
}

AveragedWeights::~AveragedWeights() { swap(); }

void AveragedWeights::swap() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!averages_[i].defined()) continue;
    const torch::Tensor kept = parameters_[i].detach().clone();
    parameters_[i].detach().copy_(averages_[i]);
    averages_[i].copy_(kept);
  }
}

}  // namespace hone::optim
