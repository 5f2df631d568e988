// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/machine/measurer.h"
#include "hone/train/tuner/layer_fitter.h"
#include "hone/tune/search/layer_search.h"

namespace hone::app {

// A whole model.
struct ModelFigures {
  std::vector<double> quality = {};  // by repeat, as the metric's
  Index bytes = 0, parameters = 0;   // of tensors in a file
  std::optional<double> runs_per_s = {};
};

// On samples that the search has not seen: the unchanged model's quality, and that of the model
// less it.
struct HeldBack {
  double unchanged = 0;
  tune::QualityChange change;
};

// What `hone tune` found.
struct TuneReport {
  tuner::QualityGoal goal;
  std::optional<double> least_quality = {};  // a mean of qualities
  bool is_timed = false;                     // the fastest model is wanted, not the smallest
  bool is_feasible = false;
  std::string tree = {};                          // of the modules with the replaced layers
  std::vector<tuner::ReplacedLayer> layers = {};  // of the model, or of the nearest one
  ModelFigures before = {};
  std::optional<ModelFigures> after = {};  // none if no quality was finite
  std::optional<HeldBack> held_back = {};  // of `after`, if it was measured
  // The speedup of the model, or of the nearest one if compared, in turns with the unchanged one.
  std::optional<RatioInterval> speedup = {};
  std::vector<std::pair<std::string, std::string>> skipped = {};  // layers and reasons
  std::string model_folder = {};
};

// {"metric", "limit", "least_quality", "cost" (its unit), "layers", "before", "after", "speedup",
// "skipped"}
Json to_json(const TuneReport& report);
std::string to_text(const TuneReport& report);

double mean_of(const std::vector<double>& samples);

// "perplexity 12.34"
std::string figure_text(const tuner::QualityGoal& goal, double quality);

}  // namespace hone::app
