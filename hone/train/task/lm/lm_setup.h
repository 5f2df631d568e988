// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "hone/train/nn/llama.h"
#include "hone/train/task/lm/initial_model.h"
#include "hone/train/task/lm/lm_data.h"
#include "hone/train/task/lm/lm_task.h"
#include "hone/train/task/lm/lm_teacher.h"

namespace hone::task {

// The text, the model on its device, and the task of a configuration, at step 0. With an initial
// model, the configuration must be that of take_initial_model(). Then the tokenizer comes from the
// model, and so do the weights if it has them. Throws Error{Unsupported} if trainer.device does not
// exist. A teacher gives a model without an initial model its tokenizer, and the task its loss.
struct LmSetup {
  LmData data;
  nn::Llama model;
  LmTask task;
};
LmSetup set_up_lm(const LmConfig& config, const InitialModel* initial = nullptr,
                  const LmTeacher* teacher = nullptr);

// The same in two parts. plan_lm() allocates no weights.
struct LmPlan {
  LmData data;
  model_io::Architecture architecture;
  TokenWindows windows;
};
LmPlan plan_lm(const LmConfig& config, const InitialModel* initial = nullptr,
               const LmTeacher* teacher = nullptr);
LmSetup set_up_lm(const LmConfig& config, LmPlan plan, const InitialModel* initial = nullptr,
                  const LmTeacher* teacher = nullptr);

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const nn::LlamaImpl& model);

}  // namespace hone::task
