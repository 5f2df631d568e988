// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace hone::memory {

// LibTorch's autograd engine leaves what a CPU backward pass that threw had queued, gradients
// included, in the thread's queue; newer passes run before it and never take it out. One that is
// older than all of them does.
class AbandonedBackward {
 public:
  // In the thread of the backward passes, before their graphs are made.
  AbandonedBackward();
  // After a backward pass that threw.
  void release() const;

 private:
  at::Tensor oldest_, gradient_;
};

}  // namespace hone::memory
