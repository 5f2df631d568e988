// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "hone/train/nn/vision.h"
#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// The device of a batch's tensors, and the order of an image's values.
struct BatchPlace {
  c10::Device device = at::kCPU;
  bool channels_last = false;
};
// {images fp32 [views * count, channels, height, width], labels int64 [count]}. The host does not
// wait for their copies to a device.
std::vector<torch::Tensor> to_tensors(const ImageValues& values, const data::ImageShape& shape,
                                      const BatchPlace& place = {});

struct ScoreOptions {
  Index count = 0;  // samples from 0
  Index batch = 1;
  Index workers = 0, prefetch = 1;  // as in Prefetcher
  BatchPlace place = {};            // must match the model
};
struct ScoredBatch {
  Index first = 0;  // sample
  torch::Tensor images, logits, labels;
};
using TakeScores = std::function<void(const ScoredBatch& batch)>;

// The outputs of a model for images, one row for each.
struct ImageScores {
  torch::Tensor logits;    // fp32 [images, classes]
  torch::Tensor features;  // fp32 [images, channels], see nn::VisionOutputs; or undefined
};

// Computes the logits [batch, classes] of every sample with the model in evaluation mode, batch by
// batch. The tensors of a batch are on the model's device. Afterwards the model is in training
// mode, also after an exception.
void score_images(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                  const TakeScores& take);

// Computes scores of every image of one epoch, options.count of them, in the order of the part, in
// one forward pass. Calls `batch_done` after each batch with the number of finished images; it may
// throw. Afterwards the model is in training mode.
ImageScores gather_scores(nn::VisionNet& model, const ImageBatches& batches,
                          const ScoreOptions& options,
                          const std::function<void(Index done)>& batch_done);

}  // namespace hone::task
