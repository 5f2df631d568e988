// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/train/task/vision/factored_layers.h"
#include "hone/train/task/vision/vision_config.h"
#include "hone/train/task/vision/vision_task.h"

namespace hone::task {

// The images, the model, on its device, and the task of a configuration, at step 0. What model.init
// gave and did not give is logged. Throws Error{Unsupported} if trainer.device is not there.
struct VisionSetup {
  std::shared_ptr<const VisionData> data;
  nn::VisionNet model;
  std::unique_ptr<VisionTask> task;
  // The parameters of `model` that lr.backbone_scale is for, by name: those that model.init gave.
  // None where it is 1.
  std::vector<std::string> scaled = {};
};
// stop: ImageOptions'. factored: the layers that were so when the run began that goes on without
// model.init. Their weights are 0 until those of its checkpoint are restored.
VisionSetup set_up_vision(const VisionConfig& config, const std::stop_token& stop = {},
                          const std::vector<FactoredLayer>& factored = {});

// Makes the optimizer of all parameters of the objective.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const VisionConfig& config,
                                                            const VisionSetup& setup);

}  // namespace hone::task
