// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/tune/tuned_model.h"

#include <algorithm>
#include <cmath>
#include <stop_token>

#include "hone/app/vision_folder.h"
#include "hone/core/check.h"

namespace hone::app {

std::unique_ptr<TunedModel> open_tuned_model(const TunedModelOptions& options) {
  return is_vision_model(options.model) ? open_tuned_classifier(options) : open_tuned_lm(options);
}

Index held_back_samples(const TunedModel& model) {
  const Index held = (model.samples() - model.calibration_samples()) / 4;
  return held < 2 ? 0 : held;
}

std::pair<Index, Index> samples_of_repeat(const TunedModel& model, Index repeat, Index repeats,
                                          double resource) {
  const Index begin = model.calibration_samples();
  const Index all = model.samples() - begin - held_back_samples(model);
  const Index parts = std::min(repeats, all), part = repeat % parts;
  const Index first = all * part / parts, end = all * (part + 1) / parts;
  const auto count =
      static_cast<Index>(std::ceil(resource * static_cast<double>(end - first) - 1e-9));
  return {begin + first, std::clamp<Index>(count, 1, end - first)};
}

Index count_calibration(Index samples, Index most) {
  HONE_REQUIRE(samples >= 1, "data", "There is nothing to measure a model on.");
  return samples == 1 ? 0 : std::min(most, (samples + 7) / 8);
}

void check_not_cancelled(const std::stop_token& stop) {
  if (stop.stop_requested()) {
    throw Error(ErrorCategory::Cancelled, "[tune] The search was interrupted.");
  }
}

}  // namespace hone::app
