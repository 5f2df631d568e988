// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "hone/train/nn/vision.h"
#include "hone/train/task/vision/collapse_guard.h"
#include "hone/train/task/vision/image_batches.h"
#include "hone/train/task/vision/objective.h"
#include "hone/train/task/vision/prefetcher.h"
#include "hone/train/task/vision/score_images.h"
#include "hone/train/trainer/trainer.h"

namespace hone::task {

// A corpus with the statistics of its training part.
struct VisionData {
  data::ImageCorpus corpus;
  ChannelStats stats;
};

struct VisionTaskOptions {
  Index micro_batch = 1, accumulation_steps = 1, validation_images = 1;
  std::uint64_t seed = 0;
  data::AugmentOptions augmentation;
  Index workers = 0, prefetch = 1;
  bool channels_last = false;  // layout of images; for the model call nn::use_channels_last()
  std::optional<CollapseGuardOptions> guard = {};
};

// Classification of images with the mean of an objective, on the device of the model. Validation
// uses the network alone, with cross entropy.
class VisionTask final : public trainer::Task {
 public:
  // `objective` must train `model`.
  VisionTask(nn::VisionNet model, std::unique_ptr<Objective> objective,
             std::shared_ptr<const VisionData> data, const VisionTaskOptions& options);
  VisionTask(const VisionTask&) = delete;
  VisionTask& operator=(const VisionTask&) = delete;

  trainer::LossSum micro_batch(Index step, Index micro) override;
  double nominal_weight() const override;
  trainer::Validation validate(bool all, const trainer::BatchDone& batch_done) override;
  // Parameters and buffers of the objective's module, and the guard's state.
  std::vector<trainer::CheckpointTensor> weights() override;
  torch::nn::Module* module() override { return &objective_->module(); }
  // One image: {view, …, labels}.
  std::vector<torch::Tensor> largest_sample() override;
  trainer::LossSum loss_of(const std::vector<torch::Tensor>& batch) override;
  void restore_buffers() override;
  bool recompute_activations() override { return model_->set_recompute_every(1); }
  // 0 for a model that mixes the images of a batch, because halving would change what it learns.
  Index halve_micro_batches() override;
  bool halve_validation_batches() override;

  // The share of the held-out images that the teacher puts into the same class.
  double agreement(const VisionTeacher& teacher);

  Objective& objective() { return *objective_; }
  // Call it at the end of training. Empty without a guard.
  std::optional<CollapseVerdict> verdict();

 private:
  struct Buffer {
    torch::Tensor tensor, copy;
    torch::Tensor rows = {};  // rows of the tensor that are in `copy`; undefined: all
  };
  void begin_step(Index step);
  // int64, without duplicates, on the device.
  torch::Tensor classes_of(Index step) const;
  trainer::LossSum loss_of(const ViewBatch& batch);

  nn::VisionNet model_;
  std::unique_ptr<Objective> objective_;
  std::optional<CollapseGuard> guard_;
  std::shared_ptr<const VisionData> data_;
  BatchPlace place_;
  ImageBatches train_, held_out_;
  Index samples_;        // per step
  Index micro_batches_;  // per step; micro m has samples from ⌊m·samples/micro_batches⌋
  Index validation_images_, validation_batch_;
  Index workers_, prefetch_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::optional<Index> step_;
  std::vector<Buffer> before_step_;
};

}  // namespace hone::task
