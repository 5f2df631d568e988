// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "hone/train/optim/multi_tensor_optimizer.h"

namespace hone::optim {

// An optimizer's state in the layout of Python's state_dict(), in two files, so that training moves
// between torch.optim and hone either way:
//   optimizer.safetensors  state.<parameter>.<name>, names as NamedState's; step is fp32 as
//                          Python's, from 2^24 on int64
//   optimizer.json         {"param_groups": [{"lr": …, "params": [0, 1, …]}]}
// docs/optimizers.md has the Python side. Each file is written under a temporary name and renamed.
void save_state_dict(const std::filesystem::path& folder, const MultiTensorOptimizer& optimizer);

// Replaces state and options by these. Keys of param_groups that hone does not have are ignored;
// options that Python's do not have keep their values. Python's SGD counts no steps: parameters
// with momentum get step 1. Throws Error{NotFound}, Error{CorruptFile} or Error{InvalidArgument},
// and then changes nothing.
void load_state_dict(const std::filesystem::path& folder, MultiTensorOptimizer& optimizer);

}  // namespace hone::optim
