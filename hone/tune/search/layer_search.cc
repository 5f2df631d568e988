// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/layer_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/tune/search/rank_plan.h"

namespace hone::tune {
namespace {

constexpr std::string_view kLayerSearch = "layer search";
constexpr std::string_view kRemedy = "; without the file, the search starts over.";

double mean(const std::vector<double>& samples) { return mean_of({true, samples}); }

// What is replaced as one: a layer, or a group of layers with a common point.
struct Unit {
  std::vector<std::string> layers;
  bool copy_weights;
  Search search;

  std::vector<LayerChoice> at(const Point& point) const {
    std::vector<LayerChoice> choices;
    for (const std::string& layer : layers) choices.push_back({layer, point, copy_weights});
    return choices;
  }
};

void check_groups(std::span<const LayerGroup> groups) {
  std::vector<std::string_view> names;
  for (const LayerGroup& group : groups) {
    HONE_REQUIRE(!group.layers.empty(), kLayerSearch, "A group has no layers.");
    HONE_CHECK(group.planned_ranks.empty() || group.planned_ranks.size() == group.layers.size(),
               kLayerSearch, concat("a planned rank for each of ", group.layers.size(), " layers"),
               group.planned_ranks.size());
    names.insert(names.end(), group.layers.begin(), group.layers.end());
  }
  HONE_REQUIRE(!names.empty(), kLayerSearch, "There are no layers to replace.");
  for (const std::string_view name : names) {
    HONE_REQUIRE(escape_controls(name) == name, kLayerSearch,
                 concat("Layer ", quote_name(name), " has a name that is no printable UTF-8."));
  }
  const Index twin = find_duplicate(static_cast<Index>(names.size()), [&names](Index i) {
    return names[static_cast<std::size_t>(i)];
  });
  HONE_REQUIRE(twin < 0, kLayerSearch,
               concat("Layer ", quote_name(names[static_cast<std::size_t>(twin)]),
                      " is to be replaced twice."));
}

std::optional<Value> find_nearest(const Categorical& domain, Index rank) {
  const auto distance = [rank](Index own) {
    return std::abs(static_cast<double>(own) - static_cast<double>(rank));
  };
  std::optional<Index> nearest;
  for (const Value& choice : domain.choices) {
    const auto* own = std::get_if<Index>(&choice);
    if (own != nullptr && (!nearest || distance(*own) < distance(*nearest))) nearest = *own;
  }
  return nearest;
}
std::optional<Value> find_nearest(const IntRange& range, Index rank) {
  const Index last = (range.high - range.low) / range.step;
  const Index above = std::clamp(rank, range.low, range.high) - range.low;
  const Index level = (above + range.step / 2) / range.step;
  return range.low + std::min(level, last) * range.step;
}
std::optional<Value> find_nearest(const FloatRange&, Index) { return std::nullopt; }

Point starting_point(const Space& space, Index rank) {
  Point point;
  std::optional<Value> nearest;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const Parameter& parameter = space.parameters()[i];
    const auto* interval = std::get_if<FloatRange>(&parameter.domain);
    Value value = interval != nullptr ? Value(interval->low) : space.value(i, 0);
    if (parameter.name == "rank") {
      nearest = std::visit([rank](const auto& domain) { return find_nearest(domain, rank); },
                           parameter.domain);
      value = nearest.value_or(value);
    }
    point.values.emplace_back(parameter.name, value);
  }
  HONE_REQUIRE(nearest.has_value(), kLayerSearch,
               "Ranks are planned, but the space has no parameter 'rank' of whole numbers.");
  return point;
}

std::vector<Unit> make_units(std::span<const LayerGroup> groups,
                             const LayerSearchOptions& options) {
  std::vector<Unit> units;
  const auto add = [&](const LayerGroup& group, std::vector<std::string> layers, Index planned) {
    std::vector<Point> first;
    if (planned > 0) first.push_back(starting_point(group.space, planned));
    units.push_back({std::move(layers), group.copy_weights,
                     Search(group.space, Direction::Maximize, options.method,
                            options.seed + units.size(), first)});
  };
  for (const LayerGroup& group : groups) {
    const auto& ranks = group.planned_ranks;
    if (!group.separate) {
      add(group, group.layers, ranks.empty() ? 0 : *std::ranges::max_element(ranks));
      continue;
    }
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      add(group, {group.layers[i]}, ranks.empty() ? 0 : ranks[i]);
    }
  }
  return units;
}

Json points_json(std::span<const LayerChoice> choices) {
  Json json = Json::object();
  for (const LayerChoice& choice : choices) json[choice.layer] = to_json(choice.point);
  return json;
}

bool is_cost(double value) { return std::isfinite(value) && value > 0; }

Json comparison_json(const std::optional<CostComparison>& comparison) {
  if (!comparison) return {};
  const auto& [ratio, low, high] = comparison->ratio;
  return {{"unchanged", comparison->unchanged},
          {"model", comparison->model},
          {"ratio", ratio},
          {"low", low},
          {"high", high}};
}

std::optional<CostComparison> comparison_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const auto number = [&json](const char* key) {
    const bool is_valid = json.is_object() && json.contains(key) && json[key].is_number() &&
                          is_cost(json[key].get<double>());
    if (!is_valid) {
      fail_corrupt(kLayerSearch, concat("A comparison has no valid '", key, "'."));
    }
    return json[key].get<double>();
  };
  return CostComparison{
      number("unchanged"), number("model"), {number("ratio"), number("low"), number("high")}};
}

Json change_json(const std::optional<QualityChange>& change) {
  if (!change) return {};
  return {{"mean", change->mean}, {"low", change->low}};
}

std::optional<QualityChange> change_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const auto number = [&json](const char* key) {
    if (!json.is_object() || !json.contains(key) ||
        !(json[key].is_number() || json[key].is_null())) {
      fail_corrupt(kLayerSearch, concat("A change of quality has no valid '", key, "'."));
    }
    return json[key].is_null() ? std::numeric_limits<double>::quiet_NaN() : json[key].get<double>();
  };
  return QualityChange{number("mean"), number("low")};
}

// A number that is not finite is null in JSON.
std::vector<double> samples_from(const Json& json) {
  if (!json.is_array()) fail_corrupt(kLayerSearch, "The samples of an evaluation are no list.");
  std::vector<double> samples;
  for (const Json& sample : json) {
    if (!sample.is_number() && !sample.is_null()) {
      fail_corrupt(kLayerSearch, "A sample of an evaluation is no number.");
    }
    samples.push_back(sample.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                       : sample.get<double>());
  }
  return samples;
}

// Evaluates models, or takes evaluations from the log as long as it has some.
class Evaluator {
 public:
  Evaluator(const LayerCallbacks& callbacks, const LayerSearchOptions& options,
            std::span<const Unit> units)
      : callbacks_(callbacks), options_(options) {
    log_["format"] = "hone layer search 3";
    log_["least_quality"] = options.least_quality ? Json(*options.least_quality) : Json();
    log_["repeats"] = options.repeats;
    log_["measures_cost"] = measures_cost();
    log_["compares"] = compares();
    log_["holds_back"] = holds_back();
    for (const Unit& unit : units) {
      log_["searches"].push_back({{"layers", unit.layers},
                                  {"copy_weights", unit.copy_weights},
                                  {"search", unit.search.save()}});
    }
    log_["evaluations"] = Json::array();
    if (!options.log.empty() && std::filesystem::exists(options.log)) {
      read_log();
    } else {
      write_log();  // so that a log that cannot be written costs no evaluation
    }
  }

  double least_quality() const { return *options_.least_quality; }

  // Models with replaced layers that will be evaluated besides those planned so far.
  void plan(std::optional<Index> models) {
    planned_ = planned_ && models ? std::optional(*planned_ + *models) : std::nullopt;
  }

  // A final model has all replacements.
  LayerEvaluation evaluate(std::vector<LayerChoice> choices, double resource, bool is_final) {
    LayerEvaluation evaluation{.choices = std::move(choices), .resource = resource};
    const bool is_logged = position_ < log_["evaluations"].size();
    if (is_logged) {
      replay(log_["evaluations"][position_], evaluation, is_final);
    } else {
      measure(evaluation, is_final);
      log_["evaluations"].push_back({{"layers", points_json(evaluation.choices)},
                                     {"resource", resource},
                                     {"quality", evaluation.quality},
                                     {"cost", evaluation.cost},
                                     {"held_back", change_json(evaluation.held_back)},
                                     {"comparison", comparison_json(evaluation.comparison)}});
      write_log();
    }
    ++position_;
    if (!evaluation.choices.empty()) count(is_logged);
    evaluation.feasible = is_feasible(evaluation);
    if (evaluation.choices.empty()) {
      unchanged_quality_ = mean(evaluation.quality);
      if (!evaluation.cost.empty()) unchanged_cost_ = mean(evaluation.cost);
    }
    return evaluation;
  }

 private:
  bool measures_cost() const { return options_.least_quality && callbacks_.cost; }
  bool compares() const { return measures_cost() && callbacks_.compare; }
  bool holds_back() const { return options_.least_quality && callbacks_.held_back; }
  bool keeps_limit(const std::vector<double>& quality) const {
    const double own = mean(quality);
    return std::isfinite(own) && !(options_.least_quality && own < *options_.least_quality);
  }
  bool is_feasible(const LayerEvaluation& evaluation) const {
    if (!keeps_limit(evaluation.quality)) return false;
    const auto& change = evaluation.held_back;
    return !change || change->low >= *options_.least_quality - unchanged_quality_;
  }
  bool needs_held_back(const LayerEvaluation& evaluation, bool is_final) const {
    return is_final && holds_back() && keeps_limit(evaluation.quality);
  }
  // The unchanged model's cost is what the others are compared with.
  bool needs_cost(const LayerEvaluation& evaluation) const {
    return measures_cost() && (evaluation.choices.empty() || is_feasible(evaluation));
  }

  void measure(LayerEvaluation& evaluation, bool is_final) const {
    if (evaluation.choices.empty()) return run(evaluation, is_final);
    try {
      callbacks_.apply(evaluation.choices);
      run(evaluation, is_final);
    } catch (...) {
      callbacks_.restore();
      throw;
    }
    callbacks_.restore();
  }

  void run(LayerEvaluation& evaluation, bool is_final) const {
    for (Index i = 0; i < options_.repeats; ++i) {
      evaluation.quality.push_back(callbacks_.quality(evaluation.resource, i));
    }
    for (const LayerChoice& choice : evaluation.choices) {
      HONE_REQUIRE(callbacks_.was_executed(choice.layer), kLayerSearch,
                   concat("The replaced layer ", quote_name(choice.layer), " was not executed."));
    }
    if (needs_held_back(evaluation, is_final)) evaluation.held_back = callbacks_.held_back();
    if (!needs_cost(evaluation)) return;
    const auto check = [](double cost) {
      HONE_CHECK(is_cost(cost), kLayerSearch, "a finite cost above 0", cost);
      return cost;
    };
    if (is_final && compares()) {
      evaluation.comparison = callbacks_.compare(evaluation.choices);
      const auto& [unchanged, model, ratio] = *evaluation.comparison;
      for (const double value : {unchanged, model, ratio.ratio, ratio.low, ratio.high})
        check(value);
      return;
    }
    for (Index i = 0; i < options_.repeats; ++i) {
      evaluation.cost.push_back(check(callbacks_.cost(i, unchanged_cost_)));
    }
  }

  void count(bool is_logged) {
    if (is_logged) return plan(-1);
    ++measured_;
    if (callbacks_.progress) callbacks_.progress(measured_, planned_);
  }

  void replay(const Json& entry, LayerEvaluation& evaluation, bool is_final) const {
    constexpr const char* kKeys[] = {"layers", "resource",  "quality",
                                     "cost",   "held_back", "comparison"};
    const bool has_keys =
        entry.is_object() && entry.size() == std::size(kKeys) &&
        std::ranges::all_of(kKeys, [&entry](const char* key) { return entry.contains(key); });
    if (!has_keys) {
      fail_corrupt(log_name(), concat("Evaluation ", position_,
                                      " lacks a key, or has an unknown one", kRemedy));
    }
    if (entry["layers"] != points_json(evaluation.choices) ||
        entry["resource"] != evaluation.resource) {
      fail_corrupt(log_name(),
                   concat("This search would not have made evaluation ", position_, kRemedy));
    }
    evaluation.quality = samples_from(entry["quality"]);
    evaluation.cost = samples_from(entry["cost"]);
    evaluation.held_back = change_from(entry["held_back"]);
    evaluation.comparison = comparison_from(entry["comparison"]);
    const auto repeats = static_cast<std::size_t>(options_.repeats);
    const bool is_compared = is_final && compares() && needs_cost(evaluation);
    const std::size_t costs = needs_cost(evaluation) && !is_compared ? repeats : 0;
    const bool is_whole =
        evaluation.quality.size() == repeats && evaluation.cost.size() == costs &&
        evaluation.held_back.has_value() == needs_held_back(evaluation, is_final) &&
        evaluation.comparison.has_value() == is_compared &&
        std::ranges::all_of(evaluation.cost, is_cost);
    if (!is_whole) {
      fail_corrupt(log_name(), concat("The samples of evaluation ", position_,
                                      " are not those that this search takes", kRemedy));
    }
  }

  void read_log() {
    Json saved = read_json_file(options_.log);
    if (!saved.is_object() || !saved.contains("evaluations") || !saved["evaluations"].is_array()) {
      fail_corrupt(log_name(), concat("The file is not the log of a layer search", kRemedy));
    }
    Json evaluations = std::move(saved["evaluations"]);
    saved["evaluations"] = Json::array();
    if (saved != log_) fail_corrupt(log_name(), "The file is the log of another layer search.");
    log_["evaluations"] = std::move(evaluations);
  }

  void write_log() const {
    if (!options_.log.empty()) write_json_file(options_.log, log_);
  }

  std::string log_name() const { return options_.log.string(); }

  const LayerCallbacks& callbacks_;
  const LayerSearchOptions& options_;
  Json log_;
  std::size_t position_ = 0;  // of the next evaluation in the log
  double unchanged_quality_ = 0, unchanged_cost_ = 0;
  Index measured_ = 0;  // models with replaced layers, as planned_
  std::optional<Index> planned_ = 0;
};

Outcome outcome_of(const LayerEvaluation& evaluation) {
  if (!evaluation.feasible) return {};
  if (evaluation.cost.empty()) return {true, evaluation.quality};
  Outcome outcome{true, {}};
  for (const double cost : evaluation.cost) outcome.samples.push_back(-cost);
  return outcome;
}

// Runs the searches, one after the other, and puts their results together.
class LayerSearch {
 public:
  explicit LayerSearch(Evaluator& evaluator) : evaluator_(evaluator) {
    result_.unchanged = evaluator.evaluate({}, 1, /*is_final=*/false);
    HONE_REQUIRE(std::isfinite(mean(result_.unchanged.quality)), kLayerSearch,
                 "The unchanged model has no finite quality.");
  }

  void search(Unit& unit) {
    std::vector<LayerEvaluation> all;
    while (const auto& point = unit.search.next()) {
      all.push_back(evaluate(unit.at(*point), unit.search.resource(), /*is_final=*/false));
      unit.search.report(*point, outcome_of(all.back()));
    }
    const auto best = unit.search.best();
    if (!best || !is_good(all[*best])) return;
    best_.push_back(all[*best]);
    std::erase_if(all, [this](const auto& one) { return one.resource != 1 || !is_good(one); });
    good_.push_back(std::move(all));
  }

  LayerSearchResult verify() {
    std::vector<LayerEvaluation> chosen = choose();
    while (!chosen.empty()) {
      std::vector<LayerChoice> all;
      for (const LayerEvaluation& one : chosen) {
        all.insert(all.end(), one.choices.begin(), one.choices.end());
      }
      LayerEvaluation model = evaluate(std::move(all), 1, /*is_final=*/true);
      if (is_good(model)) {
        result_.model = std::move(model);
        result_.nearest.reset();
        break;
      }
      const auto worst = std::ranges::max_element(
          chosen, {}, [this](const LayerEvaluation& one) { return loss_per_saving(one); });
      for (const LayerChoice& choice : worst->choices) result_.undone.push_back(choice.layer);
      chosen.erase(worst);
      if (!chosen.empty()) evaluator_.plan(1);
    }
    return std::move(result_);
  }

 private:
  LayerEvaluation evaluate(std::vector<LayerChoice> choices, double resource, bool is_final) {
    LayerEvaluation evaluation = evaluator_.evaluate(std::move(choices), resource, is_final);
    const bool is_candidate = resource == 1 && std::isfinite(mean(evaluation.quality));
    if (is_candidate && (!result_.nearest || is_nearer(evaluation, *result_.nearest))) {
      result_.nearest = evaluation;
    }
    return evaluation;
  }

  // Whether `one` is nearer to what is searched for.
  static bool is_nearer(const LayerEvaluation& one, const LayerEvaluation& other) {
    const auto own = known_cost(one), others = known_cost(other);
    if (own && others) return *own < *others;
    if (own || others) return own.has_value();
    return mean(one.quality) > mean(other.quality);
  }
  // The cost of a feasible model; nothing if it was not measured.
  static std::optional<double> known_cost(const LayerEvaluation& evaluation) {
    if (!evaluation.feasible) return std::nullopt;
    if (evaluation.comparison) return evaluation.comparison->model;
    return evaluation.cost.empty() ? std::nullopt : std::optional(mean(evaluation.cost));
  }

  // The replacements to begin with: where cost decides, those that save most if losses and costs
  // add up; otherwise the best one of each unit.
  std::vector<LayerEvaluation> choose() const {
    if (result_.unchanged.cost.empty()) return best_;
    const double budget = mean(result_.unchanged.quality) - evaluator_.least_quality();
    if (budget < 0) return best_;
    std::vector<LayerCurve> curves;
    for (const auto& evaluations : good_) {
      LayerCurve& curve = curves.emplace_back();
      curve.options.push_back({0, mean(result_.unchanged.cost), 0});
      for (const LayerEvaluation& one : evaluations) {  // the "rank" is the position in `options`
        curve.options.push_back(
            {static_cast<Index>(curve.options.size()), mean(one.cost), std::max(0.0, loss(one))});
      }
    }
    const auto plan = plan_ranks(curves, budget);
    std::vector<LayerEvaluation> chosen;
    for (std::size_t i = 0; plan && i < good_.size(); ++i) {
      if (plan->ranks[i] == 0) continue;
      chosen.push_back(good_[i][static_cast<std::size_t>(plan->ranks[i] - 1)]);
    }
    return chosen.empty() ? best_ : chosen;
  }

  bool is_good(const LayerEvaluation& evaluation) const {
    if (!evaluation.feasible) return false;
    if (evaluation.comparison) return evaluation.comparison->ratio.low > 1;
    return evaluation.cost.empty() || saving(evaluation) > 0;
  }
  double loss(const LayerEvaluation& evaluation) const {
    return mean(result_.unchanged.quality) - mean(evaluation.quality);
  }
  double saving(const LayerEvaluation& evaluation) const {
    return mean(result_.unchanged.cost) - mean(evaluation.cost);
  }
  double loss_per_saving(const LayerEvaluation& one) const {
    return one.cost.empty() ? loss(one) : loss(one) / saving(one);
  }

  Evaluator& evaluator_;
  LayerSearchResult result_;
  // The good replacements of each unit that has some, and the best one.
  std::vector<std::vector<LayerEvaluation>> good_;
  std::vector<LayerEvaluation> best_;
};

Json samples_json(const std::vector<double>& samples) {
  if (samples.empty()) return {};
  const auto error = standard_error(samples);
  return {{"mean", mean(samples)},
          {"standard_error", error ? Json(*error) : Json()},
          {"samples", samples}};
}

Json evaluation_json(const LayerEvaluation& evaluation) {
  return {{"layers", points_json(evaluation.choices)},
          {"quality", samples_json(evaluation.quality)},
          {"cost", samples_json(evaluation.cost)},
          {"held_back", change_json(evaluation.held_back)},
          {"comparison", comparison_json(evaluation.comparison)}};
}

}  // namespace

std::optional<double> standard_error(std::span<const double> samples) {
  const auto n = static_cast<double>(samples.size());
  if (n < 2) return std::nullopt;
  double center = 0, squares = 0;
  for (const double sample : samples) center += sample / n;
  for (const double sample : samples) squares += (sample - center) * (sample - center);
  return std::sqrt(squares / (n - 1) / n);
}

LayerSearchResult search_layers(std::span<const LayerGroup> groups, const LayerCallbacks& callbacks,
                                const LayerSearchOptions& options) {
  check_groups(groups);
  HONE_CHECK(options.repeats >= 1, kLayerSearch, "at least 1 repeat", options.repeats);
  HONE_CHECK(std::isfinite(options.least_quality.value_or(0)), kLayerSearch,
             "a finite least quality", *options.least_quality);
  HONE_REQUIRE(callbacks.apply && callbacks.restore && callbacks.quality && callbacks.was_executed,
               kLayerSearch,
               "One of the callbacks apply, restore, quality and was_executed is empty.");
  std::vector<Unit> units = make_units(groups, options);
  Evaluator evaluator(callbacks, options, units);
  for (const Unit& unit : units) evaluator.plan(unit.search.planned_trials());
  evaluator.plan(1);  // all replacements together
  LayerSearch search(evaluator);
  for (Unit& unit : units) search.search(unit);
  return search.verify();
}

Json to_json(const LayerSearchResult& result) {
  Json json{{"feasible", result.model.has_value()}};
  if (result.model) json["model"] = evaluation_json(*result.model);
  if (result.nearest) json["nearest"] = evaluation_json(*result.nearest);
  json["unchanged"] = evaluation_json(result.unchanged);
  json["undone"] = result.undone;
  return json;
}

}  // namespace hone::tune
