// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/scheduler.h"

#include <cmath>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "hone/core/check.h"

namespace hone::optim {
namespace {

using Rates = std::vector<double>;

// LibTorch's groups have no field for the initial rate, so it is kept here while a scheduler of the
// optimizer lives. Groups added since join with the rate they have.
std::shared_ptr<const Rates> share_initial_rates(torch::optim::Optimizer& optimizer) {
  static std::mutex mutex;
  static std::unordered_map<const void*, std::weak_ptr<Rates>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Rates> rates = known[&optimizer].lock();
  if (!rates) known[&optimizer] = rates = std::make_shared<Rates>();
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = rates->size(); i < groups.size(); ++i) {
    rates->push_back(groups[i].options().get_lr());
  }
  return rates;
}

}  // namespace

void to_json(Json& json, const SchedulerState& state) {
  json = {{"kind", state.kind}, {"step", state.step}, {"base_rates", state.base_rates}};
}

void from_json(const Json& json, SchedulerState& state) {
  try {
    state = {.kind = json.at("kind").get<std::string>(),
             .step = json.at("step").get<Index>(),
             .base_rates = json.at("base_rates").get<Rates>()};
  } catch (const Json::exception& error) {
    fail_corrupt("scheduler state", "kind, step and base_rates", error.what());
  }
}

Scheduler::Scheduler(torch::optim::Optimizer& optimizer, std::string kind)
    : LRScheduler(optimizer),
      optimizer_(optimizer),
      kind_(std::move(kind)),
      initial_rates_(share_initial_rates(optimizer)),
      base_rates_(*initial_rates_) {}

std::vector<double> Scheduler::rates_at(Index step, std::span<const double> base_rates) const {
  const std::size_t groups = optimizer_.param_groups().size();
  HONE_CHECK(groups == base_rates.size(), kind_,
             concat(base_rates.size(), " parameter groups, as when it was made"), groups);
  Rates rates;
  for (std::size_t group = 0; group < groups; ++group) {
    const double rate = rate_at(step, group, base_rates[group]);
    HONE_CHECK(std::isfinite(rate), kind_, concat("a finite rate at step ", step), rate);
    rates.push_back(rate);
  }
  return rates;
}

std::vector<double> Scheduler::get_lrs() {
  const auto step = static_cast<Index>(step_count_);
  Rates rates = rates_at(step, base_rates_);
  apply_momentum(step);
  return rates;
}

SchedulerState Scheduler::state_dict() const { return {kind_, last_step(), base_rates_}; }

void Scheduler::load_state_dict(const SchedulerState& state) {
  constexpr Index kMostSteps = std::numeric_limits<decltype(step_count_)>::max() - 1;
  HONE_CHECK(state.kind == kind_, kind_, "its own state", state.kind);
  HONE_CHECK(state.step >= 0 && state.step <= kMostSteps, kind_, concat("a step to ", kMostSteps),
             state.step);
  rates_at(state.step, state.base_rates);  // throws while nothing is changed
  base_rates_ = state.base_rates;
  step_count_ = static_cast<decltype(step_count_)>(state.step);
  step();
}

}  // namespace hone::optim
