// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/score_part.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stop_token>

#include "hone/core/check.h"
#include "hone/core/progress.h"
#include "hone/train/fuse/fuse.h"

namespace hone::app {
namespace {

constexpr Index kMostImages = 64, kMostPixels = Index{1} << 22;

}  // namespace

Index score_batch(const nn::VisionSpec& spec) {
  const Index pixels = std::min(kMostPixels, nn::most_image_pixels(spec));
  return std::clamp<Index>(pixels / (spec.height * spec.image_width), 1, kMostImages);
}

task::ImageScores score_part(task::VisionModel& model, const std::filesystem::path& folder,
                             const data::ImagePart& part, const std::stop_token& stop) {
  nn::fuse_unmeasured(*model.net);
  const task::ImageBatches batches(part, model.image_shape(), model.stats, /*seed=*/0, model.cut());
  Progress progress("classifying", part.size(), "images");
  task::ImageScores scores = task::gather_scores(
      model.net, batches,
      {.count = part.size(), .batch = score_batch(model.net->spec()), .workers = 2, .prefetch = 4},
      [&](Index done) {
        progress.update(done);
        if (stop.stop_requested()) {
          throw Error(ErrorCategory::Cancelled, "[score images] The run was interrupted.");
        }
      });
  if (!at::isfinite(scores.logits).all().item<bool>()) {
    fail_corrupt(folder.string(), "The model computes NaN or infinite logits.");
  }
  return scores;
}

}  // namespace hone::app
