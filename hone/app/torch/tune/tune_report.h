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

// Measurements of a whole model.
struct ModelFigures {
  std::vector<double> quality = {};  // one per repeat; see TunedModel::quality()
  Index bytes = 0, parameters = 0;   // size of its tensors in a file
  std::optional<double> runs_per_s = {};
};

// Quality on samples that the search has not seen: of the unchanged model, and the change of the
// model from it.
struct HeldBack {
  double unchanged = 0;
  tune::QualityChange change;
};

// The result of `hone tune`.
struct TuneReport {
  tuner::QualityGoal goal;
  std::optional<double> least_quality = {};  // limit of the mean quality
  bool is_timed = false;                     // the goal is the fastest model, not the smallest
  bool is_feasible = false;
  std::string tree = {};                          // tree of the modules with the replaced layers
  std::vector<tuner::ReplacedLayer> layers = {};  // replaced in the model, or in the nearest one
  ModelFigures before = {};
  std::optional<ModelFigures> after = {};  // nullopt if no quality was finite
  std::optional<HeldBack> held_back = {};  // for `after`; nullopt if not measured
  // Speedup of the model (or of the nearest one, if compared) over the unchanged one, run in turns.
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
