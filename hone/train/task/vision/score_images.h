// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "hone/train/nn/vision.h"
#include "hone/train/task/vision/image_batches.h"

namespace hone::task {

// {images fp32 [views * count, channels, height, width], labels int64 [count]}.
std::vector<torch::Tensor> to_tensors(const ImageValues& values, const data::ImageShape& shape);

struct ScoreOptions {
  Index count = 0;  // samples from 0
  Index batch = 1;
  Index workers = 0, prefetch = 1;  // Prefetcher's
};
using TakeScores =
    std::function<void(Index first, const torch::Tensor& logits, const torch::Tensor& labels)>;

// Computes the logits [batch, classes] of every sample with the model in evaluation mode, batch by
// batch. The model is in training mode afterwards, also after an exception.
void score_images(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                  const TakeScores& take);

}  // namespace hone::task
