// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace hone::memory {

// When a CPU backward pass throws, LibTorch's autograd engine leaves its queued tasks, including
// gradients, in the thread's queue. Newer passes have priority and never remove them. A backward
// pass over an older graph does.
class AbandonedBackward {
 public:
  // Must be constructed in the thread of the backward passes, before their graphs are built.
  AbandonedBackward();
  // Releases the queued tasks after a backward pass that threw.
  void release() const;

 private:
  at::Tensor oldest_, gradient_;
};

}  // namespace hone::memory
