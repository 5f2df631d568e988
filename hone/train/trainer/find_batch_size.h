// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/index.h"
#include "hone/train/trainer/probe_options.h"
#include "hone/train/trainer/task_fwd.h"

namespace hone::trainer {

struct BatchSearchOptions {
  Index start = 64, low = 1, high = 1024;
  // The largest share of memory to use: of `budget_bytes` or, if that is 0, of what the process may
  // use, including its own tensors.
  double limit = 0.9;
  Index budget_bytes = 0;
  // Whether gradients of earlier micro-batches exist when a forward pass begins.
  bool accumulates = false;
  ProbeOptions probe = {};
};

struct BatchProbe {
  Index size = 0;
  bool fits = false;
  Index peak_bytes = 0;  // of tensors, weights and state included; 0 where memory ran out
};

struct BatchSearch {
  Index batch = 0;      // the largest size that fits
  bool at_end = false;  // that is `high`: a larger one might fit as well
  Index limit_bytes = 0;
  std::vector<BatchProbe> probes;  // in the order in which they were tried
};

// The largest micro-batch whose training step stays within the limit: doubling or halving from
// `start`, then bisection, at most 2·log₂(high/low) + 3 real steps. Each runs forward, backward and
// optimizer on `sample` (rows along the first dimension, as large as any that training meets)
// replicated to exactly the tested size, with the optimizer's state already allocated. In the end
// weights, gradients, optimizer state and random generators are restored bit for bit. On the CPU a
// step is stopped where it would exceed the limit; on CUDA it may also fail in the allocator.
// Throws Error{Resource} if not even `low` fits.
BatchSearch find_batch_size(Task& task, optim::MultiTensorOptimizer& optimizer,
                            const std::vector<at::Tensor>& sample,
                            const BatchSearchOptions& options = {});

}  // namespace hone::trainer
