// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/calibration_images.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "hone/app/torch/held_out_images.h"
#include "hone/train/task/vision/score_images.h"

namespace hone::app {

CalibrationImages load_calibration(const data::ImageCorpus& corpus, const task::VisionModel& model,
                                   const CalibrationOptions& options) {
  const task::ImageBatches batches(corpus.train, model.image_shape(), model.stats, options.seed,
                                   model.cut());
  const std::vector<Index> labels = labels_of(corpus, corpus.train, model.classes);
  CalibrationImages out;
  const Index count = std::min(options.images, corpus.train.size());
  for (Index first = 0; first < count; first += options.batch) {
    const Index size = std::min(options.batch, count - first);
    out.images.push_back(task::to_tensors(batches.make(first, size), batches.shape())[0]);
    const torch::Tensor own = at::empty({size}, at::kLong);
    for (Index i = 0; i < size; ++i) {
      own[i] = labels[static_cast<std::size_t>(batches.index_of(first + i))];
    }
    out.labels.push_back(own);
  }
  return out;
}

}  // namespace hone::app
