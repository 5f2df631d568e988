// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// Step options of a training loop. Anything but the defaults needs every gradient at once.
struct InBackwardOptions {
  Index accumulation_steps = 1;
  double clip_norm = 0;
  bool loss_scaling = false;
  std::uint64_t rounding_seed = 0;  // StepControl::rounding_seed
};

// Steps each parameter as soon as backward() has its gradient, and then frees the gradient. This
// reduces the memory of gradients from all of them to the largest one. Every parameter has its own
// optimizer, which `make` creates. Results are bit-identical to one optimizer for all parameters,
// because the rules see one tensor at a time and round by its number.
//
// Construction throws Error{Unsupported} for accumulation, a norm clip, loss scaling and a TAM of
// scope Model. It throws Error{InvalidArgument} for a parameter that is listed twice or already has
// a hook after its gradient. An error inside a step propagates out of backward().
class InBackwardOptimizer {
 public:
  using Make = std::function<std::unique_ptr<MultiTensorOptimizer>(std::vector<torch::Tensor> one)>;

  InBackwardOptimizer(const std::vector<torch::Tensor>& params, const Make& make,
                      const InBackwardOptions& options = {});
  // After destruction, gradients accumulate again.
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
