// SPDX-License-Identifier: Apache-2.0
#include "hone/train/task/vision/score_images.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "hone/train/task/vision/prefetcher.h"

namespace hone::task {
namespace {

class EvaluationMode {
 public:
  explicit EvaluationMode(nn::VisionNetImpl& model) : model_(model) { model_.eval(); }
  ~EvaluationMode() { model_.train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  nn::VisionNetImpl& model_;
};

}  // namespace

std::vector<torch::Tensor> to_tensors(const ImageValues& values, const data::ImageShape& shape) {
  const Index views = static_cast<Index>(values.images.size()) / shape.values();
  const torch::Tensor images =
      at::empty({views, shape.channels, shape.height, shape.width}, at::kFloat);
  const torch::Tensor labels = at::empty({values.count}, at::kLong);
  std::memcpy(images.data_ptr(), values.images.data(), images.nbytes());
  std::memcpy(labels.data_ptr(), values.labels.data(), labels.nbytes());
  return {images, labels};
}

void score_images(nn::VisionNet& model, const ImageBatches& batches, const ScoreOptions& options,
                  const TakeScores& take) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode evaluation(*model);
  Prefetcher prefetcher(batches, options.workers, options.prefetch, options.count);
  for (Index first = 0; first < options.count; first += options.batch) {
    const Index count = std::min(options.batch, options.count - first);
    const auto batch = to_tensors(prefetcher.take(first, count), batches.shape());
    take(first, model->forward(batch[0]), batch[1]);
  }
}

}  // namespace hone::task
