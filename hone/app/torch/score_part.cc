// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/score_part.h"

#include <ATen/ATen.h>

#include "hone/core/check.h"
#include "hone/core/progress.h"

namespace hone::app {

task::ImageScores score_part(task::VisionModel& model, const std::filesystem::path& folder,
                             const data::ImagePart& part, const std::atomic<bool>* stop) {
  const task::ImageBatches batches(part, model.image_shape(), model.stats, /*seed=*/0, model.cut());
  Progress progress("classifying", part.size(), "images");
  task::ImageScores scores = task::gather_scores(
      model.net, batches, {.count = part.size(), .batch = 64, .workers = 2, .prefetch = 4},
      [&](Index done) {
        progress.update(done);
        if (stop != nullptr && *stop) {
          throw Error(ErrorCategory::Cancelled, "[classify] The run was interrupted.");
        }
      });
  if (!at::isfinite(scores.logits).all().item<bool>()) {
    fail_corrupt(folder.string(), "The model computes NaN or infinite logits.");
  }
  return scores;
}

}  // namespace hone::app
