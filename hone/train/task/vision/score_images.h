// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "hone/train/nn/vision.h"
#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// Where the tensors of a batch are, and the order of an image's values there.
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
  Index workers = 0, prefetch = 1;  // Prefetcher's
  BatchPlace place = {};            // the model's
};
using TakeScores =
    std::function<void(Index first, const torch::Tensor& logits, const torch::Tensor& labels)>;

// What a model makes of images, one row for each.
struct ImageScores {
  torch::Tensor logits;    // fp32 [images, classes]
  torch::Tensor features;  // fp32 [images, channels] as nn::VisionOutputs; undefined without them
};

// Computes the logits [batch, classes] of every sample with the model in evaluation mode, batch by
// batch; they and the labels are where the model is. The model is in training mode afterwards, also
// after an exception.
void score_images(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                  const TakeScores& take);

// Every image of one epoch, options.count of them, in the order of the part, by one forward pass.
// `batch_done` learns after each batch how many images are done, and may throw. The model is in
// training mode afterwards.
ImageScores gather_scores(nn::VisionNet& model, const ImageBatches& batches,
                          const ScoreOptions& options,
                          const std::function<void(Index done)>& batch_done);

}  // namespace hone::task
