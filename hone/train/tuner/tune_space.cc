// SPDX-License-Identifier: Apache-2.0
#include "hone/train/tuner/tune_space.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/config/config_table.h"

namespace hone::tuner {
namespace {

constexpr std::array<std::string_view, 3> kMetrics{"perplexity", "loss", "accuracy"};
constexpr std::array<std::string_view, 5> kSearches{"grid", "random", "tpe", "evolution",
                                                    "hyperband"};
constexpr std::array<std::string_view, 2> kModes{"sketched", "lowrank"};
constexpr std::array<std::string_view, 4> kFits{"random", "projection", "svd", "activation"};
constexpr std::string_view kWhole = "whole numbers from 1 to 2^30";
constexpr Index kMostTrials = 100'000, kMostRank = Index{1} << 30;

template <class Enum, std::size_t n>
Enum member(const std::array<std::string_view, n>& names, std::string_view name) {
  return static_cast<Enum>(std::ranges::find(names, name) - names.begin());
}

struct RawLayers {
  ConfigValue select, params, rank, bytes, fit, mode, terms;
  bool separate = true;
};

struct RawSpace {
  std::string kind, metric, search = "tpe";
  double max_ratio = 1, max_drop = 0, plan_error = 0.05;
  Index trials = 40, repeats = 1, ratio = 9, seed = 0, batch = 1, tokens = 128;
  std::deque<RawLayers> layers;
};

template <std::size_t n>
ConfigEntry choice(std::string_view name, std::string& text,
                   const std::array<std::string_view, n>& known, bool required) {
  return {.name = name, .field = &text, .required = required, .check = [&text, &known] {
            return std::ranges::find(known, text) != known.end() ? std::string()
                                                                 : join_choices(known);
          }};
}
template <class Number>
ConfigEntry number(std::string_view name, Number& value, Number low, Number high) {
  return {.name = name, .field = &value, .check = in_range(value, low, high)};
}

ConfigEntries entries_of(RawSpace& raw) {
  static constexpr std::array<std::string_view, 1> kKinds{"layers"};
  return {choice("kind", raw.kind, kKinds, true),
          choice("quality.metric", raw.metric, kMetrics, true),
          number("quality.max_ratio", raw.max_ratio, 1e-3, 1e6),
          number("quality.max_drop", raw.max_drop, 0.0, 1.0),
          choice("search.name", raw.search, kSearches, false),
          number("search.trials", raw.trials, Index{1}, kMostTrials),
          number("search.repeats", raw.repeats, Index{1}, kMostRepeats),
          number("search.ratio", raw.ratio, Index{3}, kMostTrials),
          number("search.seed", raw.seed, Index{0}, Index{1} << 62),
          number("speed.batch", raw.batch, Index{1}, Index{1} << 20),
          number("speed.tokens", raw.tokens, Index{2}, Index{1} << 20),
          number("plan.error", raw.plan_error, 0.0, 1.0)};
}

ConfigEntries entries_of(RawLayers& raw) {
  return {{.name = "layers.select", .field = &raw.select, .required = true},
          {.name = "layers.params", .field = &raw.params},
          {.name = "layers.params.rank", .field = &raw.rank},
          {.name = "layers.params.bytes", .field = &raw.bytes},
          {.name = "layers.params.fit", .field = &raw.fit},
          {.name = "layers.params.mode", .field = &raw.mode},
          {.name = "layers.params.terms", .field = &raw.terms},
          {.name = "layers.separate", .field = &raw.separate}};
}

std::string place_of(const ConfigValue& value, std::string_view key) {
  return concat(value.place, ": layers.", key);
}
bool is_given(const ConfigValue& value) { return !value.place.empty(); }

// The values of a key: one, or a list of different ones. `take` returns nothing for a value of
// another type or out of range.
template <class Take>
auto list_of(const ConfigValue& value, std::string_view key, std::string_view legal,
             const Take& take) {
  std::vector<typename std::invoke_result_t<Take, const Json&>::value_type> out;
  if (!is_given(value)) return out;
  const std::string place = place_of(value, key);
  const Json items = value.json.is_array() ? value.json : Json::array({value.json});
  HONE_REQUIRE(!items.empty(), place, concat("The list is empty; it takes ", legal, "."));
  for (const Json& item : items) {
    const auto taken = take(item);
    if (!taken) {
      fail_argument(place, legal, item.is_string() ? item.get<std::string>() : item.dump());
    }
    HONE_REQUIRE(std::ranges::find(out, *taken) == out.end(), place,
                 concat("The value ", item.dump(), " is there twice."));
    out.push_back(*taken);
  }
  return out;
}

auto take_whole(Index low) {
  return [low](const Json& json) -> std::optional<Index> {
    if (!json.is_number_integer()) return std::nullopt;
    const auto value = json.get<Index>();
    return value >= low && value <= kMostRank ? std::optional(value) : std::nullopt;
  };
}
std::optional<double> take_share(const Json& json) {
  if (!json.is_number()) return std::nullopt;
  const auto value = json.get<double>();
  return value > 0 && value < 1 ? std::optional(value) : std::nullopt;
}
template <class Enum, std::size_t n>
auto take_member(const std::array<std::string_view, n>& names) {
  return [&names](const Json& json) -> std::optional<Enum> {
    if (!json.is_string()) return std::nullopt;
    const auto name = json.get<std::string>();
    if (std::ranges::find(names, name) == names.end()) return std::nullopt;
    return member<Enum>(names, name);
  };
}

void check_together(const RawLayers& raw, const LayerParameters& parameters) {
  const bool is_sketched =
      std::ranges::find(parameters.modes, nn::FactorMode::Sketched) != parameters.modes.end();
  HONE_REQUIRE(!is_given(raw.rank) || !is_given(raw.bytes), place_of(raw.bytes, "params.bytes"),
               "The rank is given, too, and either follows from the other.");
  HONE_REQUIRE(!is_given(raw.terms) || (is_sketched && parameters.modes.size() == 1),
               place_of(raw.terms, "params.terms"),
               "Only sketched layers have terms: they take mode = \"sketched\" alone.");
  for (const nn::FactorMode mode : parameters.modes) {
    for (const nn::Fit fit : parameters.fits) {
      if (has_fit(mode, fit)) continue;
      std::string known;
      for (const std::string_view name : kFits) {
        if (has_fit(mode, fit_of(name))) known += concat(known.empty() ? "" : ", ", name);
      }
      fail_argument(place_of(raw.fit, "params.fit"),
                    concat("fits that ", name_of(mode), " layers have (", known, ")"),
                    name_of(fit));
    }
  }
  if (!is_sketched) return;
  const std::vector<Index> terms =
      parameters.terms.empty() ? std::vector<Index>{1} : parameters.terms;
  for (const Index rank : parameters.ranks) {
    for (const Index own : terms) {
      HONE_CHECK(rank % (2 * own) == 0, place_of(raw.rank, "params.rank"),
                 concat("a multiple of 2 * terms = ", 2 * own, " for sketched layers"), rank);
    }
  }
}

LayerParameters parameters_of(const RawLayers& raw) {
  if (is_given(raw.params)) {
    HONE_CHECK(
        raw.params.json == "auto", place_of(raw.params, "params"), "\"auto\" or a table",
        raw.params.json.is_string() ? raw.params.json.get<std::string>() : raw.params.json.dump());
  }
  LayerParameters out;
  out.ranks = list_of(raw.rank, "params.rank", kWhole, take_whole(1));
  out.bytes = list_of(raw.bytes, "params.bytes", "shares above 0 and below 1", take_share);
  out.fits = list_of(raw.fit, "params.fit", join_choices(kFits), take_member<nn::Fit>(kFits));
  out.terms = list_of(raw.terms, "params.terms", kWhole, take_whole(1));
  if (is_given(raw.mode)) {
    out.modes =
        list_of(raw.mode, "params.mode", join_choices(kModes), take_member<nn::FactorMode>(kModes));
  }
  out.is_auto = !is_given(raw.rank) && !is_given(raw.bytes) && !is_given(raw.fit) &&
                !is_given(raw.mode) && !is_given(raw.terms);
  check_together(raw, out);
  return out;
}

LayerSpace layer_space(const RawLayers& raw) {
  LayerSpace out;
  out.select_place = place_of(raw.select, "select");
  try {
    out.selector = nn::read_selector(raw.select.json);
  } catch (const Error& error) {
    throw Error(error.category(), concat(error.what(), " (", out.select_place, ")"));
  }
  out.parameters = parameters_of(raw);
  out.separate = raw.separate;
  out.rank_place = is_given(raw.rank) ? place_of(raw.rank, "params.rank") : out.select_place;
  out.bytes_place = place_of(raw.bytes, "params.bytes");
  out.fit_place = place_of(raw.fit, "params.fit");
  return out;
}

tune::Method method_of(const RawSpace& raw, const ConfigKeys& given, const std::string& where) {
  const bool is_hyperband = raw.search == "hyperband";
  const char* ignored = is_hyperband ? "search.trials" : "search.ratio";
  HONE_REQUIRE(!given.contains(ignored), where,
               concat("The key ", ignored, " has no effect with search.name = ", raw.search, "."));
  if (is_hyperband) return tune::HyperbandMethod{.ratio = raw.ratio};
  if (raw.search == "grid") {
    if (!given.contains("search.trials")) return tune::GridMethod{};
    return tune::GridMethod{.trials = raw.trials};
  }
  if (raw.search == "random") return tune::RandomMethod{.trials = raw.trials};
  if (raw.search == "evolution") {
    tune::EvolutionMethod method;
    method.population = std::min(method.population, raw.trials);
    method.elite = std::min(method.elite, method.population);
    method.generations = (raw.trials + method.population - 1) / method.population;
    return method;
  }
  tune::TpeMethod method{.trials = raw.trials};
  method.initial = std::max<Index>(2, std::min(method.initial, raw.trials));
  return method;
}

QualityGoal goal_of(const RawSpace& raw, const ConfigKeys& given, const std::string& where) {
  QualityGoal goal{.metric = member<QualityMetric>(kMetrics, raw.metric)};
  const bool is_accuracy = goal.metric == QualityMetric::Accuracy;
  const char* other = is_accuracy ? "quality.max_ratio" : "quality.max_drop";
  HONE_REQUIRE(!given.contains(other), where,
               concat("The key ", other, " has no meaning for ", raw.metric, ", whose limit is ",
                      is_accuracy ? "quality.max_drop." : "quality.max_ratio."));
  if (given.contains("quality.max_ratio")) goal.max_ratio = raw.max_ratio;
  if (given.contains("quality.max_drop")) goal.max_drop = raw.max_drop;
  return goal;
}

}  // namespace

std::string_view name_of(QualityMetric metric) {
  return kMetrics[static_cast<std::size_t>(metric)];
}
std::string_view name_of(nn::FactorMode mode) { return kModes[static_cast<std::size_t>(mode)]; }
std::string_view name_of(nn::Fit fit) { return kFits[static_cast<std::size_t>(fit)]; }
nn::FactorMode mode_of(std::string_view name) { return member<nn::FactorMode>(kModes, name); }
nn::Fit fit_of(std::string_view name) { return member<nn::Fit>(kFits, name); }

bool has_fit(nn::FactorMode mode, nn::Fit fit) {
  if (fit == nn::Fit::Activation) return true;
  return (fit == nn::Fit::Svd) == (mode == nn::FactorMode::LowRank);
}

std::optional<double> QualityGoal::least_quality(double unchanged) const {
  if (max_drop) return unchanged - *max_drop;
  if (!max_ratio) return std::nullopt;
  return metric == QualityMetric::Perplexity ? unchanged - std::log(*max_ratio)
                                             : unchanged * *max_ratio;
}

double QualityGoal::figure(double quality) const {
  if (metric == QualityMetric::Accuracy) return quality;
  return metric == QualityMetric::Perplexity ? std::exp(-quality) : -quality;
}

TuneSpace read_tune_space(const std::filesystem::path& path) {
  const std::string where = path.string();
  TuneSpace out;
  out.text = read_config_file(path);
  RawSpace raw;
  const ConfigLists lists{{.name = "layers", .append = [&raw](const std::string&) {
                             return entries_of(raw.layers.emplace_back());
                           }}};
  const ConfigKeys given = read_entries(entries_of(raw), out.text, where, lists);
  out.quality = goal_of(raw, given, where);
  out.method = method_of(raw, given, where);
  out.repeats = raw.repeats;
  out.seed = static_cast<std::uint64_t>(raw.seed);
  out.plan_error = raw.plan_error;
  if (given.contains("speed.batch") || given.contains("speed.tokens")) {
    out.speed = SpeedRun{.batch = raw.batch};
    if (given.contains("speed.tokens")) out.speed->tokens = raw.tokens;
    HONE_REQUIRE(out.quality.has_limit(), where,
                 "With speed, the quality needs a limit: quality.max_ratio or quality.max_drop.");
  }
  HONE_REQUIRE(!raw.layers.empty(), where, "There is no [[layers]] table.");
  for (const RawLayers& layers : raw.layers) out.layers.push_back(layer_space(layers));
  return out;
}

}  // namespace hone::tuner
