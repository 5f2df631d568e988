// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/train/loss/distillation.h"
#include "hone/train/nn/vision.h"
#include "hone/train/paco/peak_cache.h"
#include "hone/train/task/vision/loss_config.h"
#include "hone/train/task/vision/vision_model.h"
#include "hone/train/task/vision/vision_teacher.h"
#include "hone/train/trainer/trainer.h"

namespace hone::task {

struct ViewBatch {
  std::vector<torch::Tensor> views;  // each [images, channels, height, width]
  torch::Tensor targets;             // int64 [images]
  Index epoch = 0;                   // passes over the images before this one
  paco::ShownImages shown = {};      // empty: not known
};

struct ObjectiveLoss {
  torch::Tensor mean;  // over the images; scalar with gradient
  // Logits of one view or of the mean of both, [images, classes]. For a ResNet, also the means over
  // its last map, [images, channels].
  torch::Tensor logits, features;
  torch::Tensor active_share;            // for part contrast; else undefined
  std::vector<trainer::LossTerm> terms;  // the computed terms
};

// The objective that training minimizes over images.
class Objective {
 public:
  virtual ~Objective() = default;
  // Contains the network and everything else that is trained. Each parameter and buffer occurs
  // once.
  virtual torch::nn::Module& module() = 0;
  virtual Index views() const = 0;
  virtual ObjectiveLoss loss(const ViewBatch& batch) = 0;
  // Buffers [classes, …] in which loss() only changes the rows of the batch's classes.
  virtual std::vector<torch::Tensor> class_buffers() const { return {}; }
  // Report for the result of a run; null if there is none.
  virtual Json report() const { return {}; }
  // How it finds parts, if it does.
  virtual std::optional<PartSpec> parts() const { return {}; }
};

// Creates the objective of loss.method. Throws Error{InvalidArgument} that names the key if it
// cannot train the network. `seed` is for new weights, and `images` is the number of training
// images, for paco.refresh_every above 1.
std::unique_ptr<Objective> make_objective(const LossConfig& loss, const PacoConfig& paco,
                                          nn::VisionNet net, std::uint64_t seed, Index images = 0);
// Cross entropy and the logits of a teacher, as loss::distillation_sums() combines them.
std::unique_ptr<Objective> make_distillation(nn::VisionNet net,
                                             std::shared_ptr<const VisionTeacher> teacher,
                                             const LossConfig& loss,
                                             loss::DistillationOptions options);

}  // namespace hone::task
