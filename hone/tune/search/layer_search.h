// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/tune/search/search.h"

namespace hone::tune {

// Layers that may be replaced in the same ways.
struct LayerGroup {
  std::vector<std::string> layers;
  Space space;               // of the parameters of one replacement
  bool separate = true;      // every layer has a search of its own; false: all get the same point
  bool copy_weights = true;  // whether a replacement approximates the trained weights; see apply
  // Empty, or the rank of each layer by plan_ranks(); 0 is dense. The value of the parameter "rank"
  // nearest to it (of a common point, to the largest one), with the first value of every other
  // parameter, is tried first.
  std::vector<Index> planned_ranks = {};
};

struct LayerChoice {
  std::string layer;
  Point point;
  bool copy_weights = true;

  bool operator==(const LayerChoice&) const = default;
};

// The model. An exception of a callback ends the search, after restore() if layers were replaced.
struct LayerCallbacks {
  // Replaces these layers of the unchanged model.
  std::function<void(std::span<const LayerChoice> choices)> apply;
  // Brings the unchanged model back, also after an apply() that failed half-way.
  std::function<void()> restore;
  // How good the model is; larger is better, and a number that is not finite is a failure. `repeat`
  // counts from 0: with the same random numbers for equal repeats, models differ by less noise.
  std::function<double(double resource, Index repeat)> quality;
  // Runs per second, or anything else above 0 of which more is better. May be empty.
  std::function<double(Index repeat)> speed;
  // Whether the replacement of a layer was called since apply().
  std::function<bool(const std::string& layer)> was_executed;
  // May be empty. Called after each model with replaced layers that is measured: how many have been
  // so far, and how many will be if no more replacement is undone; empty where a search does not
  // know its trials. Neither counts models from the log.
  std::function<void(Index measured, std::optional<Index> planned)> progress = {};
};

struct LayerSearchOptions {
  Method method = TpeMethod{};  // of each search
  // With it, a model is feasible if its mean quality is at least this; without it, if that is
  // finite. If there is also a callback for the speed, the fastest feasible model is best, and the
  // speed of infeasible ones is not measured. Otherwise the quality decides, and no speed is
  // measured.
  std::optional<double> least_quality = {};
  Index repeats = 1;  // of each measurement; means decide
  std::uint64_t seed = 0;
  // The file that has all evaluations after each one. A search whose log exists takes the results
  // from there as far as they go: a search that was killed goes on as if it had not been.
  std::filesystem::path log = {};
};

// What was measured of the model with some layers replaced. The mean of the qualities is not finite
// if one of them is not.
struct LayerEvaluation {
  std::vector<LayerChoice> choices;
  double resource = 1;
  std::vector<double> quality, speed;  // one for each repeat; no speeds if it was not measured
  bool feasible = false;
};

// The standard error of the mean of independent samples; empty for fewer than two.
std::optional<double> standard_error(std::span<const double> samples);

struct LayerSearchResult {
  LayerEvaluation unchanged;
  // The model with all its replacements, evaluated as a whole after the searches. Empty if the
  // space is infeasible: if no model was found that has a replaced layer, is feasible and, where
  // speed decides, is faster than the unchanged one.
  std::optional<LayerEvaluation> model;
  // Where there is no such model, the one of the best quality with full resources; empty if none
  // with full resources had a finite quality, as all trials of Hyperband may be.
  std::optional<LayerEvaluation> nearest;
  // Layers whose replacements had to be undone, in this order.
  std::vector<std::string> undone;
};

// Searches for each layer, or group that shares a point, the best replacement in the otherwise
// unchanged model. Then one replacement for each is applied and all are evaluated together: where
// speed decides, those that save most time if losses of quality and times add up (plan_ranks());
// otherwise the best ones. While that model is not good enough, the replacement that lost most
// quality for the time it saved (alone; where no speed is measured, most quality) is undone.
//
// Throws Error{InvalidArgument} if there is no group or layer, a layer is in two groups, a setting
// is out of range, the unchanged model has no finite quality, a speed is not above 0, or a replaced
// layer was not executed; Error{CorruptFile} if the log is malformed or of another search.
LayerSearchResult search_layers(std::span<const LayerGroup> groups, const LayerCallbacks& callbacks,
                                const LayerSearchOptions& options);

// {"feasible": …, "model" or "nearest": {"layers": {name: point, …}, "quality": {"mean": …,
// "standard_error": …, "samples": […]}, "speed": …}, "unchanged": …, "undone": […]}
Json to_json(const LayerSearchResult& result);

}  // namespace hone::tune
