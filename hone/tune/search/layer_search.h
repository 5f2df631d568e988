// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hone/core/machine/measurer.h"
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

// A model with replaced layers beside the unchanged one, measured in turns.
struct CostComparison {
  double unchanged = 0, model = 0;  // costs, above 0
  RatioInterval ratio;              // unchanged / model: above 1 where the model is cheaper
};

// The quality of a model less that of the unchanged one, on samples that no search has seen: the
// mean, and the lower end of its one-sided 95 % interval.
struct QualityChange {
  double mean = 0, low = 0;
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
  // Seconds of a run, bytes, or anything else above 0 of which less is better and whose savings add
  // up over layers. `unchanged` is the mean cost of the unchanged model, 0 while that is measured:
  // a cost that drifts is measured in turns with the unchanged model's and scaled to `unchanged`.
  // May be empty.
  std::function<double(Index repeat, double unchanged)> cost;
  // Whether the replacement of a layer was called since apply().
  std::function<bool(const std::string& layer)> was_executed;
  // May be empty. Compares the model with these replacements, which are applied, with the unchanged
  // one, and may leave either behind. With it, a model with all replacements is cheaper only if the
  // whole interval is above 1, and `cost` is not called for such models.
  std::function<CostComparison(std::span<const LayerChoice> choices)> compare = {};
  // May be empty. Compares the qualities of the model as it is now and of the unchanged one on
  // samples held back. With it and a least quality, a model with all replacements is feasible only
  // if the lower end lies no further below 0 than the least quality below that of the unchanged
  // model: the search has chosen the luckiest of many models on the samples of `quality`.
  std::function<QualityChange()> held_back = {};
  // May be empty. Called after each model with replaced layers that is measured: how many have been
  // so far, and how many will be if no more replacement is undone; empty where a search does not
  // know its trials. Neither counts models from the log.
  std::function<void(Index measured, std::optional<Index> planned)> progress = {};
};

struct LayerSearchOptions {
  Method method = TpeMethod{};  // of each search
  // With it, a model is feasible if its mean quality is at least this; without it, if that is
  // finite. If there is also a callback for the cost, the cheapest feasible model is best, and the
  // cost of infeasible ones is not measured. Otherwise the quality decides, and no cost is
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
  std::vector<LayerChoice> choices = {};
  double resource = 1;
  std::vector<double> quality = {};  // one for each repeat
  std::vector<double> cost = {};     // as many, or none if they were not measured
  std::optional<QualityChange> held_back = {};
  std::optional<CostComparison> comparison = {};
  bool feasible = false;
};

// The standard error of the mean of independent samples; empty for fewer than two.
std::optional<double> standard_error(std::span<const double> samples);

struct LayerSearchResult {
  LayerEvaluation unchanged;
  // The model with all its replacements, evaluated as a whole after the searches. Empty if the
  // space is infeasible: if no model was found that has a replaced layer, is feasible and, where
  // cost decides, is cheaper than the unchanged one.
  std::optional<LayerEvaluation> model;
  // If `model` is empty: the cheapest feasible model, or, if no cost was measured, the one with the
  // best quality. Only models with full resources count, so that it is also empty if none of those
  // had a finite quality, for example because Hyperband tried none.
  std::optional<LayerEvaluation> nearest;
  // Layers whose replacements had to be undone, in this order.
  std::vector<std::string> undone;
};

// Searches for each layer, or group that shares a point, the best replacement in the otherwise
// unchanged model. Then replacements that are good alone are applied and evaluated together: where
// cost decides, those that save most if losses of quality and costs add up (plan_ranks());
// otherwise the best one of each layer. While that model is not good enough, the replacement that
// lost most quality for what it saved (alone; where no cost is measured, most quality) is undone.
//
// Throws Error{InvalidArgument} if there is no group or layer, a layer is in two groups, a setting
// is out of range, the unchanged model has no finite quality, a cost is not above 0, or a replaced
// layer was not executed; Error{CorruptFile} if the log is malformed or of another search.
LayerSearchResult search_layers(std::span<const LayerGroup> groups, const LayerCallbacks& callbacks,
                                const LayerSearchOptions& options);

// {"feasible": …, "model" or "nearest": {"layers": {name: point, …}, "quality": {"mean": …,
// "standard_error": …, "samples": […]}, "cost": …, "comparison": …}, "unchanged": …, "undone": […]}
Json to_json(const LayerSearchResult& result);

}  // namespace hone::tune
