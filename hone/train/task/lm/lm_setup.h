// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/train/nn/llama.h"
#include "hone/train/task/lm/lm_data.h"
#include "hone/train/task/lm/lm_task.h"

namespace hone::task {

// The text, the model, on its device, and the task of a configuration, at step 0. Throws
// Error{Unsupported} if trainer.device is not there.
struct LmSetup {
  LmData data;
  nn::Llama model;
  LmTask task;
};
LmSetup set_up_lm(const LmConfig& config);

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const nn::LlamaImpl& model);

}  // namespace hone::task
