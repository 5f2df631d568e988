// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/core/index.h"
#include "hone/train/trainer/probe_options.h"
#include "hone/train/trainer/task_fwd.h"

namespace hone::trainer {

struct BatchSearchOptions {
  Index start = 64, low = 1, high = 1024;
  // Maximum share of memory to use. The memory is `budget_bytes` or, if that is 0, what the process
  // may use, including its own tensors.
  double limit = 0.9;
  Index budget_bytes = 0;
  // Whether gradients of earlier micro-batches exist when a forward pass begins.
  bool accumulates = false;
  ProbeOptions probe = {};
};

struct BatchProbe {
  Index size = 0;
  bool fits = false;
  Index peak_bytes = 0;  // of tensors, including weights and state; 0 if memory ran out
};

struct BatchSearch {
  Index batch = 0;      // the largest size that fits
  bool at_end = false;  // the result is `high`; a larger size might also fit
  Index limit_bytes = 0;
  std::vector<BatchProbe> probes;  // in the order in which they were tried
};

// Finds the largest micro-batch whose training step stays within the limit. Doubles or halves from
// `start`, then bisects, in at most 2·log₂(high/low) + 3 real steps. Each step runs forward,
// backward and optimizer, with the optimizer's state already allocated. Its batch is `sample`
// replicated to exactly the tested size. `sample` has rows along the first dimension, as large as
// any in training.
//
// Finally restores weights, gradients, optimizer state and random generators bit for bit. On the
// CPU, stops a step when it would exceed the limit; on CUDA, a step may also fail in the allocator.
// Throws Error{Resource} if not even `low` fits.
BatchSearch find_batch_size(Task& task, optim::MultiTensorOptimizer& optimizer,
                            const std::vector<at::Tensor>& sample,
                            const BatchSearchOptions& options = {});

}  // namespace hone::trainer
