// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// What a training loop wants of a step; all but the defaults need every gradient at once.
struct InBackwardOptions {
  Index accumulation_steps = 1;
  double clip_norm = 0;
  bool loss_scaling = false;
  std::uint64_t rounding_seed = 0;  // StepControl::rounding_seed
};

// Steps each parameter as soon as backward() has its gradient, and frees the gradient: the memory
// of all gradients becomes that of the largest one. Every parameter has an optimizer of its own,
// made by `make`; results have the bits of one optimizer over all, as the rules see one tensor at a
// time and round by its number. Error{Unsupported} at construction for accumulation, a norm clip,
// loss scaling and a TAM of scope Model, Error{InvalidArgument} for a parameter that is listed
// twice or has a hook of somebody else behind its gradient. An error inside a step leaves
// backward() as an exception.
class InBackwardOptimizer {
 public:
  using Make = std::function<std::unique_ptr<MultiTensorOptimizer>(std::vector<torch::Tensor> one)>;

  InBackwardOptimizer(const std::vector<torch::Tensor>& params, const Make& make,
                      const InBackwardOptions& options = {});
  // Gradients accumulate again.
  ~InBackwardOptimizer();
  InBackwardOptimizer(const InBackwardOptimizer&) = delete;
  InBackwardOptimizer& operator=(const InBackwardOptimizer&) = delete;

  void set_lr(double lr);
  // Steps taken by each parameter, in order.
  std::vector<Index> steps() const;
  // The optimizer of parameter `i`, for saving and loading its state.
  MultiTensorOptimizer& optimizer(Index i) { return *optimizers_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<torch::Tensor> params_;
  std::vector<std::unique_ptr<MultiTensorOptimizer>> optimizers_;
  std::mutex mutex_;  // backward() may run several threads
};

}  // namespace hone::optim
