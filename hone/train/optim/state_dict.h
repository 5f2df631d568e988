// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// An optimizer's state in the layout of Python's state_dict(), in two files, so that training moves
// between hone and torch.optim's SGD, Adam, AdamW, Adagrad,
// RMSprop and Muon either way:
//   optimizer.safetensors  state.<parameter>.<name>, names as NamedState's; step is fp32 as
//                          Python's, from 2^24 on int64
//   optimizer.json         {"param_groups": [{"lr": …, "params": [0, 1, …]}]}, Python's names of
//                          options, and those of hone's own
// docs/optimizers.md has the Python side. Each file is written aside and renamed.
void save_state_dict(const std::filesystem::path& folder, const MultiTensorOptimizer& optimizer);

// Replaces state and options by these. Keys of param_groups that the optimizer does not have are
// not read, except decoupled_weight_decay: the other kind of weight decay is Error{Unsupported}
// unless weight_decay is 0. Options whose key is absent keep their values. Python's SGD and Muon
// count no steps: parameters whose state has none get step 1. Error{NotFound}, Error{CorruptFile},
// Error{InvalidArgument}, Error{Unsupported}: nothing has changed.
void load_state_dict(const std::filesystem::path& folder, MultiTensorOptimizer& optimizer);

}  // namespace hone::optim
