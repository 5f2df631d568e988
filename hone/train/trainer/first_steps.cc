// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/first_steps.h"

#include <algorithm>
#include <cmath>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/train/optim/rule_table.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/trainer/schedule.h"

namespace hone::trainer {
namespace {

// β2 = 0.999 is forgotten then.
constexpr Index kLongestStart = 2000;
// Times the steps of the other rule's default (docs/notes/tam.md).
constexpr double kTooLarge = 3;

bool is_adaptive(const optim::OptimConfig& optim) {
  return optim::find_entry(optim.name).reads("optim.beta2");
}

}  // namespace

FirstSteps first_steps_of(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                          Index steps) {
  HONE_CHECK(optim.beta2.has_value(), "first_steps_of", "fill_defaults()", "optim.beta2 at auto");
  optim::SGD stand_in({torch::zeros({1})}, optim::SGDOptions(peak).momentum(0.9));
  const optim::SchedulerPtr schedule = make_schedule(lr, steps, stand_in);
  FirstSteps out;
  double momentum = 0, correlation = 0, square = 0;
  for (Index t = 1; t <= std::min(steps, kLongestStart); ++t) {
    if (t > 1) correlation = optim.decay_rate * correlation + (1 - optim.decay_rate);
    const double damping = optim.fixed_damping > 0 ? optim.fixed_damping : (1 + correlation) / 2;
    momentum = optim.momentum * momentum + optim.eps + damping;
    square = *optim.beta2 * square + (1 - *optim.beta2);
    const double moved = schedule->rate_at(t - 1, 0, peak) *
                         (is_adaptive(optim) ? momentum / std::sqrt(square) : momentum);
    if (moved > out.largest) out = {moved, t};
  }
  return out;
}

std::optional<std::string> first_steps_warning(const optim::OptimConfig& optim,
                                               const optim::LrConfig& lr, double peak,
                                               optim::RuleTable rules, Index steps) {
  if (!optim::find_entry(optim.name).is_torque()) return {};
  const FirstSteps first = first_steps_of(fill_defaults(optim, rules), lr, peak, steps);
  const std::string_view other = is_adaptive(optim) ? "adamw" : "sgd";
  const double rate = find_rule(rules, other).peak;
  // SGD's momentum of 0.9 sums up, too.
  const double usual = is_adaptive(optim) ? rate : rate / (1 - optim::OptimConfig().momentum);
  const double ratio = first.largest / usual;
  if (!(ratio > kTooLarge)) return {};
  return concat(
      "optim.name = ", optim.name, ": by step ", first.at, " weights whose gradients agree move ",
      std::round(10 * ratio) / 10, " times as far as with ", other, " at its default rate of ",
      rate, ", and the loss may rise first: lower lr.peak",
      is_adaptive(optim) ? " or optim.beta2" : " or optim.momentum", " (docs/optimizers.md)");
}

void warn_of_first_steps(const optim::OptimConfig& optim, const optim::LrConfig& lr, double peak,
                         optim::RuleTable rules, Index steps) {
  const auto warning = first_steps_warning(optim, lr, peak, rules, steps);
  if (warning) log_warning(*warning);
}

}  // namespace hone::trainer
