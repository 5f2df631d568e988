// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// The decay of a moving average after `steps` steps: min(decay, (1 + steps) / (10 + steps)), so
// that the first weights are soon forgotten.
double warmed_ema_decay(double decay, Index steps);

// For a scope: parameters and their moving averages (MultiTensorOptimizer::averages) trade places,
// bit for bit, so that the averages are what is measured or written. Parameters without an average
// stay. Takes the memory of the largest parameter.
class AveragedWeights {
 public:
  explicit AveragedWeights(MultiTensorOptimizer& optimizer);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void swap();

  std::vector<torch::Tensor> parameters_, averages_;
};

}  // namespace hone::optim
