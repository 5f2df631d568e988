// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// The state of an optimizer in the layout of Python's state_dict(), in two files. Training can move
// between hone and torch.optim's SGD, Adam, AdamW, Adagrad, RMSprop and Muon in both directions:
//   optimizer.safetensors  state.<parameter>.<name>, names as in NamedState; step is fp32 as
//                          in Python, and int64 from 2^24 on
//   optimizer.json         {"param_groups": [{"lr": …, "params": [0, 1, …]}]} with Python's names
//                          of options, and those that hone adds
// docs/optimizers.md has the Python side. Each file is written to a temporary name and renamed.
void save_state_dict(const std::filesystem::path& folder, const MultiTensorOptimizer& optimizer);

// Replaces state and options by these. Ignores keys of param_groups that the optimizer does not
// have. The exception is decoupled_weight_decay: the other kind of weight decay throws
// Error{Unsupported} unless weight_decay is 0. Options whose key is absent keep their values.
// Python's SGD and Muon do not count steps: parameters whose state has no step get step 1. Throws
// Error{NotFound}, Error{CorruptFile}, Error{InvalidArgument} and Error{Unsupported}; then nothing
// has changed.
void load_state_dict(const std::filesystem::path& folder, MultiTensorOptimizer& optimizer);

}  // namespace hone::optim
