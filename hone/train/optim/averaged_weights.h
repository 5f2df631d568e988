// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Returns the decay of a moving average after `steps` steps: min(decay, (1 + steps) / (10 +
// steps)). The smaller decay at the start forgets the initial weights quickly.
double warmed_ema_decay(double decay, Index steps);

// A buffer that training changes, such as a running mean, and its moving average.
struct AveragedBuffer {
  std::string name;
  torch::Tensor buffer, average;
};

// In this scope, parameters and `buffers` have the values of their moving averages
// (MultiTensorOptimizer::averages), rounded to their type, to evaluate or save them. The destructor
// restores both, bit for bit. Parameters without an average do not change. Takes memory for the
// largest parameter, and for all parameters that are narrower than fp32.
class AveragedWeights {
 public:
  explicit AveragedWeights(MultiTensorOptimizer& optimizer,
                           std::span<const AveragedBuffer> buffers = {});
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  void swap();

  std::vector<torch::Tensor> parameters_, averages_, aside_;
};

}  // namespace hone::optim
