// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/one_cycle_lr.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "hone/train/optim/lr/group_momentum.h"
#include "hone/train/optim/lr/scheduler_checks.h"

namespace hone::optim {

OneCycleLR::OneCycleLR(torch::optim::Optimizer& optimizer, OneCycleLROptions options)
    : Scheduler(optimizer, "OneCycleLR"), options_(std::move(options)) {
  if (options_.max_lr.size() == 1) options_.max_lr.resize(groups(), options_.max_lr.front());
  check();
  const auto total = static_cast<double>(options_.total_steps);
  const double rise = options_.pct_start * total;
  phases_ = {{rise - 1, Level::Initial, Level::Max}};
  if (options_.three_phase) {
    phases_.push_back({2 * options_.pct_start * total - 2, Level::Max, Level::Initial});
    phases_.push_back({total - 1, Level::Initial, Level::Min});
  } else {
    phases_.push_back({total - 1, Level::Max, Level::Min});
  }
  step();
}

void OneCycleLR::check() const {
  const OneCycleLROptions& o = options_;
  HONE_CHECK(o.max_lr.size() == groups(), kind(),
             concat("one max_lr, or one per group: ", groups()), o.max_lr.size());
  for (const double rate : o.max_lr) check_number(kind(), "max_lr", rate);
  check_count(kind(), "total_steps", o.total_steps, 1);
  HONE_CHECK(o.pct_start > 0 && o.pct_start < 1, kind(), "pct_start above 0 and below 1",
             o.pct_start);
  HONE_CHECK(!o.three_phase || o.pct_start <= 0.5, kind(),
             "pct_start of at most 0.5 with three phases", o.pct_start);
  HONE_CHECK(o.div_factor > 0 && o.final_div_factor > 0, kind(), "divisors above 0",
             std::min(o.div_factor, o.final_div_factor));
  if (!o.cycle_momentum) return;
  for (const double momentum : {o.base_momentum, o.max_momentum}) {
    HONE_CHECK(momentum >= 0 && momentum < 1, kind(), "momentum from 0 to below 1", momentum);
  }
  for (const auto& group : optimizer().param_groups()) {
    HONE_CHECK(get_momentum(group.options()).has_value(), kind(),
               "options with momentum or betas (or cycle_momentum off)", "options without");
  }
}

// A phase of no length is over at once; the last one goes on beyond its end (step T).
double OneCycleLR::interpolate(Index step, const std::array<double, 3>& levels) const {
  HONE_CHECK(step <= options_.total_steps, kind(),
             concat("at most total_steps = ", options_.total_steps, " steps"), step);
  const auto at = static_cast<double>(step);
  double begin = 0;
  auto phase = phases_.begin();
  for (; at > phase->end && phase + 1 != phases_.end(); ++phase) begin = phase->end;
  const double length = phase->end - begin, share = length == 0 ? 1 : (at - begin) / length;
  const double from = levels[static_cast<std::size_t>(phase->from)];
  const double to = levels[static_cast<std::size_t>(phase->to)];
  if (options_.anneal == Anneal::Linear) return from + (to - from) * share;
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double OneCycleLR::rate_at(Index step, std::size_t group, double) const {
  const double most = options_.max_lr[group], initial = most / options_.div_factor;
  return interpolate(step, {initial, most, initial / options_.final_div_factor});
}

void OneCycleLR::apply_momentum(Index step) {
  if (!options_.cycle_momentum) return;
  const double most = options_.max_momentum;
  const double momentum = interpolate(step, {most, options_.base_momentum, most});
  for (auto& group : mutable_optimizer().param_groups()) set_momentum(group.options(), momentum);
}

}  // namespace hone::optim
