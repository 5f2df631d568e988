// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/reduce_on_plateau_lr.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "hone/train/optim/lr/scheduler_checks.h"

namespace hone::optim {
namespace {

constexpr const char* kKind = "ReduceOnPlateauLR";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double best_from(const Json& json) {
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  return json.get<double>();
}

}  // namespace

void to_json(Json& json, const ReduceOnPlateauLRState& state) {
  const Json best =
      std::isinf(state.best) ? Json(state.best > 0 ? "inf" : "-inf") : Json(state.best);
  json = {{"best", best},
          {"steps", state.steps},
          {"bad_steps", state.bad_steps},
          {"cooldown_left", state.cooldown_left},
          {"rates", state.rates}};
}

void from_json(const Json& json, ReduceOnPlateauLRState& state) {
  try {
    state = {.best = best_from(json.at("best")),
             .steps = json.at("steps").get<Index>(),
             .bad_steps = json.at("bad_steps").get<Index>(),
             .cooldown_left = json.at("cooldown_left").get<Index>(),
             .rates = json.at("rates").get<std::vector<double>>()};
  } catch (const Json::exception& error) {
    fail_corrupt("scheduler state", "best, steps, bad_steps, cooldown_left and rates",
                 error.what());
  }
}

ReduceOnPlateauLR::ReduceOnPlateauLR(torch::optim::Optimizer& optimizer,
                                     ReduceOnPlateauLROptions options)
    : optimizer_(optimizer), options_(std::move(options)) {
  state_.best = options_.mode == PlateauMode::Min ? kInfinity : -kInfinity;
  const std::size_t groups = optimizer_.param_groups().size();
  if (options_.min_lr.size() == 1) options_.min_lr.resize(groups, options_.min_lr.front());
  check();
}

void ReduceOnPlateauLR::check() const {
  const ReduceOnPlateauLROptions& o = options_;
  const std::size_t groups = optimizer_.param_groups().size();
  HONE_CHECK(o.factor >= 0 && o.factor < 1, kKind, "a factor from 0 to below 1", o.factor);
  check_count(kKind, "patience", o.patience, 0);
  check_count(kKind, "cooldown", o.cooldown, 0);
  check_number(kKind, "threshold", o.threshold);
  const bool share = o.threshold_mode == PlateauThreshold::Relative && o.mode == PlateauMode::Min;
  HONE_CHECK(!share || o.threshold < 1, kKind, "a relative threshold below 1", o.threshold);
  check_number(kKind, "eps", o.eps);
  HONE_CHECK(o.min_lr.size() == groups, kKind, concat("one min_lr, or one per group: ", groups),
             o.min_lr.size());
  for (const double rate : o.min_lr) check_number(kKind, "min_lr", rate);
}

bool ReduceOnPlateauLR::is_better(double metric) const {
  const bool relative = options_.threshold_mode == PlateauThreshold::Relative;
  const double t = options_.threshold;
  if (options_.mode == PlateauMode::Min) {
    return metric < (relative ? state_.best * (1 - t) : state_.best - t);
  }
  return metric > (relative ? state_.best * (1 + t) : state_.best + t);
}

void ReduceOnPlateauLR::reduce_rates() {
  auto& groups = optimizer_.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double before = groups[i].options().get_lr();
    const double after = std::max(before * options_.factor, options_.min_lr[i]);
    if (before - after > options_.eps) groups[i].options().set_lr(after);
  }
}

void ReduceOnPlateauLR::step(double metric) {
  HONE_CHECK(optimizer_.param_groups().size() == options_.min_lr.size(), kKind,
             concat(options_.min_lr.size(), " parameter groups, as when it was made"),
             optimizer_.param_groups().size());
  ++state_.steps;
  ++state_.bad_steps;
  if (is_better(metric)) {
    state_.best = metric;
    state_.bad_steps = 0;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.bad_steps = 0;
  }
  if (state_.bad_steps > options_.patience) {
    reduce_rates();
    state_.cooldown_left = options_.cooldown;
    state_.bad_steps = 0;
  }
}

std::vector<double> ReduceOnPlateauLR::last_rates() const {
  std::vector<double> rates;
  for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

ReduceOnPlateauLRState ReduceOnPlateauLR::state_dict() const {
  ReduceOnPlateauLRState state = state_;
  state.rates = last_rates();
  return state;
}

void ReduceOnPlateauLR::load_state_dict(const ReduceOnPlateauLRState& state) {
  auto& groups = optimizer_.param_groups();
  HONE_CHECK(state.rates.size() == groups.size(), kKind,
             concat("rates of ", groups.size(), " groups"), state.rates.size());
  for (const double rate : state.rates) check_number(kKind, "rate", rate);
  HONE_CHECK(!std::isnan(state.best), kKind, "a best metric", state.best);
  check_count(kKind, "steps", state.steps, 0);
  check_count(kKind, "bad_steps", state.bad_steps, 0);
  check_count(kKind, "cooldown_left", state.cooldown_left, 0);
  state_ = state;
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(state.rates[i]);
}

}  // namespace hone::optim
