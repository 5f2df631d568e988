// SPDX-License-Identifier: Apache-2.0
#include "hone/app/torch/tune/tune_report.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"
#include "hone/tune/search/layer_search.h"

namespace hone::app {
namespace {

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const tuner::QualityGoal& goal, const ModelFigures& figures) {
  Json samples = Json::array();
  for (const double quality : figures.quality) samples.push_back(goal.figure(quality));
  const auto error = tune::standard_error(figures.quality);
  return {{std::string(name_of(goal.metric)), goal.figure(mean_of(figures.quality))},
          {"samples", samples},
          {"quality", mean_of(figures.quality)},
          {"standard_error", number(error)},
          {"bytes", figures.bytes},
          {"parameters", figures.parameters},
          {"runs_per_s", number(figures.runs_per_s)}};
}

std::string goal_text(const TuneReport& report) {
  if (!report.least_quality) {
    return concat("all layers replaced, each for the best ", name_of(report.goal.metric));
  }
  const bool is_accuracy = report.goal.metric == tuner::QualityMetric::Accuracy;
  return concat("the ", report.is_timed ? "fastest" : "smallest", " model with ",
                is_accuracy ? "an " : "a ", name_of(report.goal.metric),
                is_accuracy ? " of at least " : " of at most ",
                fixed(report.goal.figure(*report.least_quality), 4));
}

std::string table_of(const std::vector<tuner::ReplacedLayer>& layers) {
  Index width = 5;
  for (const tuner::ReplacedLayer& layer : layers) {
    width = std::max(width, static_cast<Index>(escape_controls(layer.path).size()));
  }
  std::string text =
      concat(align_left("layer", width),
             "  mode      fit         rank       kB and of dense    kFLOP and of dense  error\n");
  for (const tuner::ReplacedLayer& layer : layers) {
    const auto pair = [](Index own, Index dense) {
      return concat(align_right(fixed(static_cast<double>(own) / 1e3, 1), 8), " ",
                    align_right(fixed(static_cast<double>(dense) / 1e3, 1), 8));
    };
    text +=
        concat(align_left(escape_controls(layer.path), width), "  ",
               align_left(tuner::name_of(layer.point.mode), 8), "  ",
               align_left(tuner::name_of(layer.point.fit), 10), "  ",
               align_right(concat(layer.point.rank), 4), "  ", pair(layer.bytes, layer.dense_bytes),
               "  ", pair(layer.flops, layer.dense_flops), "  ", fixed(layer.error, 4));
    if (layer.output_error) text += concat(" (outputs ", fixed(*layer.output_error, 4), ")");
    text += '\n';
  }
  return text;
}

std::string speed_text(const ModelFigures& figures) {
  return figures.runs_per_s ? concat(", ", fixed(*figures.runs_per_s, 2), " runs/s")
                            : std::string();
}

std::string line_of(const tuner::QualityGoal& goal, std::string_view name,
                    const ModelFigures& figures) {
  return concat(align_left(name, 10), figure_text(goal, mean_of(figures.quality)), ", ",
                fixed(static_cast<double>(figures.bytes) / 1e6, 3), " MB, ", figures.parameters,
                " parameters", speed_text(figures), "\n");
}

// Below the unchanged model's.
double allowed_loss(const TuneReport& report) {
  return mean_of(report.before.quality) - *report.least_quality;
}

Json held_back_json(const TuneReport& report) {
  if (!report.held_back || !report.least_quality) return {};
  const auto& [unchanged, change] = *report.held_back;
  return {{"unchanged", unchanged},
          {"change", change.mean},
          {"low", change.low},
          {"least_quality", unchanged - allowed_loss(report)}};
}

std::string held_back_text(const TuneReport& report) {
  if (!report.held_back || !report.least_quality) return {};
  const auto& [unchanged, change] = *report.held_back;
  return concat("on samples held back: ", figure_text(report.goal, unchanged), " becomes ",
                fixed(report.goal.figure(unchanged + change.mean), 4),
                ", with 95 % confidence no worse than ",
                fixed(report.goal.figure(unchanged + change.low), 4), "\n");
}

std::string why_infeasible(const TuneReport& report) {
  if (!report.after) return "infeasible: no model had a finite quality\n";
  const bool keeps_limit =
      report.least_quality && mean_of(report.after->quality) >= *report.least_quality;
  if (keeps_limit && report.held_back && report.held_back->change.low < -allowed_loss(report)) {
    return "infeasible: the nearest model may exceed the limit on samples that the search has not "
           "seen; it has\n";
  }
  return keeps_limit ? concat("infeasible: no model within the limit is ",
                              report.is_timed ? "faster" : "smaller",
                              " than the unchanged one; the nearest has\n")
                     : "infeasible: the nearest model has\n";
}

}  // namespace

double mean_of(const std::vector<double>& samples) { return tune::mean_of({true, samples}); }

std::string figure_text(const tuner::QualityGoal& goal, double quality) {
  return concat(name_of(goal.metric), " ", fixed(goal.figure(quality), 4));
}

Json to_json(const TuneReport& report) {
  Json layers = Json::array(), skipped = Json::array();
  for (const tuner::ReplacedLayer& layer : report.layers) layers.push_back(to_json(layer));
  for (const auto& [path, reason] : report.skipped) {
    skipped.push_back({{"layer", path}, {"reason", reason}});
  }
  const auto& speedup = report.speedup;
  return {
      {"feasible", report.is_feasible},
      {"metric", std::string(name_of(report.goal.metric))},
      {"limit", report.least_quality ? Json(report.goal.figure(*report.least_quality)) : Json()},
      {"least_quality", number(report.least_quality)},
      {"cost", report.least_quality ? Json(report.is_timed ? "seconds" : "bytes") : Json()},
      {"before", to_json(report.goal, report.before)},
      {"after", report.after ? to_json(report.goal, *report.after) : Json()},
      {"held_back", held_back_json(report)},
      {"speedup",
       speedup ? Json{{"ratio", speedup->ratio}, {"low", speedup->low}, {"high", speedup->high}}
               : Json()},
      {"layers", layers},
      {"skipped", skipped}};
}

std::string to_text(const TuneReport& report) {
  std::string text;
  for (const auto& [path, reason] : report.skipped) {
    text += concat("skipped ", escape_controls(path), ": ", reason, "\n");
  }
  if (report.is_feasible) text += report.tree;
  if (!report.is_feasible) text += why_infeasible(report);
  if (!report.layers.empty()) text += table_of(report.layers);
  text += line_of(report.goal, "unchanged", report.before);
  if (report.after) {
    text += line_of(report.goal, report.is_feasible ? "model" : "nearest", *report.after);
  }
  text += held_back_text(report);
  text += concat("goal: ", goal_text(report), "\n");
  if (const auto& speedup = report.speedup) {
    text += concat("speed of the model: ", fixed(speedup->ratio, 3),
                   " times that of the unchanged one [", fixed(speedup->low, 3), ", ",
                   fixed(speedup->high, 3), "]\n");
  }
  if (report.is_feasible) text += concat("model: ", escape_controls(report.model_folder), "\n");
  return text;
}

}  // namespace hone::app
