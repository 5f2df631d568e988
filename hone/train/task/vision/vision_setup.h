// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "hone/train/task/vision/vision_config.h"
#include "hone/train/task/vision/vision_task.h"

namespace hone::task {

// The images, the model and the task of a configuration, at step 0. What model.init gave and did
// not give is logged.
struct VisionSetup {
  std::shared_ptr<const VisionData> data;
  nn::VisionNet model;
  std::unique_ptr<VisionTask> task;
};
// stop: ImageOptions'.
VisionSetup set_up_vision(const VisionConfig& config, const std::atomic<bool>* stop = nullptr);

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const VisionConfig& config,
                                                            const nn::VisionNetImpl& model);

}  // namespace hone::task
