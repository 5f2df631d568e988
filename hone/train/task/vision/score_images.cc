// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/score_images.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "hone/core/check.h"
#include "hone/train/device.h"
#include "hone/train/surgery/evaluation_scope.h"
#include "hone/train/task/vision/prefetcher.h"

namespace hone::task {
namespace {

// Calls take(first sample, images, labels) batch by batch with the model in evaluation mode.
template <class Take>
void for_each_batch(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                    const Take& take) {
  const torch::NoGradGuard no_grad;
  const nn::EvaluationScope evaluation(*model);
  Prefetcher prefetcher(batches, options.workers, options.prefetch, options.count);
  for (Index first = 0; first < options.count; first += options.batch) {
    const Index count = std::min(options.batch, options.count - first);
    const auto batch = to_tensors(prefetcher.take(first, count), batches.shape(), options.place);
    take(first, batch[0], batch[1]);
  }
}

// Writes the rows of a batch to where its images are in the part.
void put_rows(torch::Tensor& all, const torch::Tensor& rows, const torch::Tensor& places,
              Index images) {
  if (!rows.defined()) return;
  if (!all.defined()) all = at::empty({images, rows.size(1)}, at::kFloat);
  all.index_copy_(0, places, rows.to(at::kCPU, at::kFloat));
}

}  // namespace

std::vector<torch::Tensor> to_tensors(const ImageValues& values, const data::ImageShape& shape,
                                      const BatchPlace& place) {
  const Index views = static_cast<Index>(values.images.size()) / shape.values();
  const torch::Tensor images = at::empty({views, shape.channels, shape.height, shape.width},
                                         host_options(at::kFloat, place.device));
  const torch::Tensor labels = at::empty({values.count}, host_options(at::kLong, place.device));
  std::memcpy(images.data_ptr(), values.images.data(), images.nbytes());
  std::memcpy(labels.data_ptr(), values.labels.data(), labels.nbytes());
  const auto format =
      place.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return {send(images, place.device).contiguous(format), send(labels, place.device)};
}

void score_images(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                  const TakeScores& take) {
  for_each_batch(model, batches, options,
                 [&](Index first, const torch::Tensor& images, const torch::Tensor& labels) {
                   take({first, images, model->forward(images), labels});
                 });
}

ImageScores gather_scores(nn::VisionNet& model, const ImageBatches& batches,
                          const ScoreOptions& options,
                          const std::function<void(Index done)>& batch_done) {
  HONE_CHECK(options.count == batches.images_per_epoch(), "gather_scores",
             concat(batches.images_per_epoch(), " images, one epoch"), options.count);
  ImageScores all;
  for_each_batch(model, batches, options,
                 [&](Index first, const torch::Tensor& images, const torch::Tensor&) {
                   const nn::VisionOutputs outputs = model->forward_with_features(images);
                   const torch::Tensor places = at::empty({images.size(0)}, at::kLong);
                   auto* const place = places.data_ptr<std::int64_t>();
                   for (Index i = 0; i < images.size(0); ++i)
                     place[i] = batches.index_of(first + i);
                   put_rows(all.logits, outputs.logits, places, options.count);
                   put_rows(all.features, outputs.features, places, options.count);
                   batch_done(first + images.size(0));
                 });
  return all;
}

}  // namespace hone::task
