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

// The images, the model on its device, and the task of a configuration, at step 0. Logs what
// model.init provided and what it lacked. Throws Error{Unsupported} if trainer.device does not
// exist.
struct VisionSetup {
  std::shared_ptr<const VisionData> data;
  nn::VisionNet model;
  std::unique_ptr<VisionTask> task;
  // Names of the parameters of `model` that lr.backbone_scale applies to: those from model.init.
  // Empty if lr.backbone_scale is 1.
  std::vector<std::string> scaled = {};
  std::shared_ptr<const VisionTeacher> teacher = {};  // of distill.teacher; null without
};
// What a net had from model.init, for a run that resumes without it. Weights of factored layers are
// 0 until the checkpoint is restored.
struct RecordedNet {
  std::vector<FactoredLayer> factored = {};
  std::vector<Index> inner_widths = {};
  Index image_side = 0;  // of the images of a folder, unless the configuration says it
};
// stop: see ImageOptions.
VisionSetup set_up_vision(const VisionConfig& config, const std::stop_token& stop = {},
                          const RecordedNet& recorded = {});

// Makes the optimizer of all parameters of the objective.
std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const VisionConfig& config,
                                                            const VisionSetup& setup);

}  // namespace hone::task
