// SPDX-License-Identifier: Apache-2.0
#include "hone/tune/search/search.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "hone/core/check.h"
#include "hone/tune/search/proposer.h"

namespace hone::tune {
namespace {

constexpr std::string_view kSearch = "search";

Json method_json(const GridMethod& method) {
  return {{"name", "grid"}, {"trials", method.trials ? Json(*method.trials) : Json()}};
}
Json method_json(const RandomMethod& method) {
  return {{"name", "random"}, {"trials", method.trials}};
}
Json method_json(const TpeMethod& method) {
  return {{"name", "tpe"},
          {"trials", method.trials},
          {"initial", method.initial},
          {"candidates", method.candidates},
          {"gamma", method.gamma}};
}
Json method_json(const EvolutionMethod& method) {
  return {{"name", "evolution"},
          {"population", method.population},
          {"generations", method.generations},
          {"mutation", method.mutation},
          {"crossover", method.crossover},
          {"tournament", method.tournament},
          {"elite", method.elite}};
}
Json method_json(const HyperbandMethod& method) {
  return {{"name", "hyperband"}, {"ratio", method.ratio}, {"eta", method.eta}};
}

std::optional<Index> most_trials(const GridMethod& method) { return method.trials; }
std::optional<Index> most_trials(const RandomMethod& method) { return method.trials; }
std::optional<Index> most_trials(const TpeMethod& method) { return method.trials; }
std::optional<Index> most_trials(const EvolutionMethod& method) {
  return method.population * method.generations;
}

struct MakeProposer {
  const SearchState& state;
  auto operator()(const GridMethod& method) const { return make_grid(method, state); }
  auto operator()(const RandomMethod& method) const { return make_random(method, state); }
  auto operator()(const TpeMethod& method) const { return make_tpe(method, state); }
  auto operator()(const EvolutionMethod& method) const { return make_evolution(method, state); }
  auto operator()(const HyperbandMethod& method) const { return make_hyperband(method, state); }
};

void check_outcome(const Outcome& outcome) {
  HONE_REQUIRE(!outcome.feasible || !outcome.samples.empty(), kSearch,
               "A feasible outcome has no sample.");
  for (const double sample : outcome.samples) {
    HONE_CHECK(std::isfinite(sample), kSearch, "finite samples", sample);
  }
}

Outcome outcome_from(const Json& json) {
  if (!json["feasible"].is_boolean() || !json["samples"].is_array()) {
    fail_corrupt(kSearch, "A saved trial has no valid outcome.");
  }
  Outcome outcome{json["feasible"].get<bool>(), {}};
  for (const Json& sample : json["samples"]) {
    if (!sample.is_number() || !std::isfinite(sample.get<double>())) {
      fail_corrupt(kSearch, "A sample of a saved trial is no finite number.");
    }
    outcome.samples.push_back(sample.get<double>());
  }
  if (outcome.feasible && outcome.samples.empty()) {
    fail_corrupt(kSearch, "A feasible trial has no sample.");
  }
  return outcome;
}

// The C library's last bit of exp and log may differ between the machines that wrote and read a
// file, so values of an interval agree when they do to 1e-9.
bool agrees(const Point& saved, const Point& proposed) {
  for (std::size_t i = 0; i < saved.values.size(); ++i) {
    const Value& a = saved.values[i].second;
    const Value& b = proposed.values[i].second;
    if (a == b) continue;
    const auto* x = std::get_if<double>(&a);
    const auto* y = std::get_if<double>(&b);
    if (x == nullptr || y == nullptr) return false;
    if (std::abs(*x - *y) > 1e-9 * std::max(std::abs(*x), std::abs(*y))) return false;
  }
  return true;
}

}  // namespace

double mean_of(const Outcome& outcome) {
  double mean = 0;  // of shares, so that it is finite
  for (const double sample : outcome.samples) {
    mean += sample / static_cast<double>(outcome.samples.size());
  }
  return mean;
}

Search::Search(Space space, Direction direction, Method method, std::uint64_t seed,
               std::span<const Point> first)
    : state_{std::move(space), direction, seed, {}, {}, {}}, method_(std::move(method)) {
  for (const Point& point : first) state_.first.push_back(state_.space.normalize(point));
  proposer_ = std::visit(MakeProposer{state_}, method_);
  advance();
}

Search::Search(Search&&) noexcept = default;
Search& Search::operator=(Search&&) noexcept = default;
Search::~Search() = default;

void Search::advance() {
  auto proposal = proposer_->propose(state_);
  pending_.reset();
  if (!proposal) return;
  pending_ = std::move(proposal->point);
  resource_ = proposal->resource;
}

void Search::record(Trial trial) {
  state_.tried.insert(key_of(trial.point));
  state_.trials.push_back(std::move(trial));
  advance();
}

void Search::report(const Point& point, Outcome outcome) {
  HONE_REQUIRE(pending_.has_value(), kSearch, "The search is finished.");
  HONE_REQUIRE(point == *pending_, kSearch, "The reported point is not the one proposed last.");
  check_outcome(outcome);
  record({*pending_, resource_, std::move(outcome)});
}

std::optional<std::size_t> Search::best() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < state_.trials.size(); ++i) {
    const Trial& trial = state_.trials[i];
    if (!trial.outcome.feasible || trial.resource != 1) continue;
    if (!best || ranks_before(state_, i, *best)) best = i;
  }
  return best;
}

std::optional<Index> Search::planned_trials() const {
  const std::optional<Index> points = state_.space.count();
  return std::visit(
      [&points](const auto& method) -> std::optional<Index> {
        if constexpr (std::is_same_v<decltype(method), const HyperbandMethod&>) {
          return std::nullopt;
        } else {
          const std::optional<Index> most = most_trials(method);
          return most && points ? std::min(*most, *points) : most ? most : points;
        }
      },
      method_);
}

Json Search::settings() const {
  Json json;
  json["format"] = "hone search 1";
  json["method"] = std::visit([](const auto& method) { return method_json(method); }, method_);
  json["direction"] = state_.direction == Direction::Maximize ? "maximize" : "minimize";
  json["seed"] = state_.seed;
  json["space"] = to_json(state_.space);
  json["first"] = Json::array();
  for (const Point& point : state_.first) json["first"].push_back(to_json(point));
  return json;
}

Json Search::save() const {
  Json json = settings();
  json["trials"] = Json::array();
  for (const Trial& trial : state_.trials) {
    json["trials"].push_back({{"point", to_json(trial.point)},
                              {"resource", trial.resource},
                              {"feasible", trial.outcome.feasible},
                              {"samples", trial.outcome.samples}});
  }
  return json;
}

void Search::load(const Json& saved) {
  if (!saved.is_object()) fail_corrupt(kSearch, "a saved search", saved.type_name());
  const Json own = settings();
  for (const auto& [key, setting] : own.items()) {
    if (!saved.contains(key)) fail_corrupt(kSearch, concat("The saved search has no ", key, "."));
    if (saved[key] != setting) {
      fail_corrupt(kSearch, concat("The saved search has another ", key, "."));
    }
  }
  if (saved.size() != own.size() + 1 || !saved.contains("trials") || !saved["trials"].is_array()) {
    fail_corrupt(kSearch, "The saved search has no list of trials, or has an unknown key.");
  }
  Search loaded(state_.space, state_.direction, method_, state_.seed, state_.first);
  for (const Json& trial : saved["trials"]) loaded.load_trial(trial);
  *this = std::move(loaded);
}

void Search::load_trial(const Json& json) {
  const bool has_keys = json.is_object() && json.size() == 4 && json.contains("point") &&
                        json.contains("resource") && json.contains("feasible") &&
                        json.contains("samples");
  if (!has_keys) fail_corrupt(kSearch, "A saved trial lacks a key, or has an unknown one.");
  Trial trial{state_.space.read_point(json["point"]), resource_, outcome_from(json)};
  if (!pending_ || !agrees(trial.point, *pending_) || json["resource"] != resource_) {
    fail_corrupt(kSearch, concat("This search would not have proposed the saved trial ",
                                 state_.trials.size(), "."));
  }
  record(std::move(trial));
}

}  // namespace hone::tune
