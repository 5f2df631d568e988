// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/lr/one_cycle_lr.h"
#include "hone/train/optim/sgd.h"

namespace hone::trainer {
namespace {

optim::SchedulerPtr make_one_cycle(const optim::LrConfig& lr, Index total,
                                   torch::optim::Optimizer& optimizer) {
  optim::OneCycleLROptions options;
  for (const auto& group : optimizer.param_groups()) {
    options.max_lr.push_back(group.options().get_lr());
  }
  options.total_steps = total;
  options.pct_start = lr.rise;
  options.cycle_momentum = lr.cycle_momentum;
  options.final_div_factor = 1 / (options.div_factor * lr.final_ratio);
  return std::make_shared<optim::OneCycleLR>(optimizer, std::move(options));
}

// Step W-1 already has the full peak.
optim::SchedulerPtr make_warm_up(Index steps, torch::optim::Optimizer& optimizer) {
  const double start = steps > 0 ? 1 / static_cast<double>(steps) : 1;
  return std::make_shared<optim::WarmupLR>(
      optimizer, optim::WarmupLROptions{.steps = std::max<Index>(0, steps - 1), .start = start});
}

optim::SchedulerPtr make_decay(const optim::LrConfig& lr, Index total,
                               torch::optim::Optimizer& optimizer) {
  const Index steps = std::max<Index>(1, total - lr.warm_up_steps);
  if (lr.schedule == "linear") {
    return std::make_shared<optim::PolynomialLR>(optimizer, steps, /*power=*/1, /*eta_min=*/0,
                                                 lr.final_ratio);
  }
  HONE_CHECK(lr.schedule == "cosine", "lr.schedule", "cosine, linear, constant or one_cycle",
             lr.schedule);
  return std::make_shared<optim::CosineLR>(optimizer, steps, /*eta_min=*/0, lr.final_ratio);
}

}  // namespace

optim::SchedulerPtr make_schedule(const optim::LrConfig& lr, Index total,
                                  torch::optim::Optimizer& optimizer) {
  if (lr.schedule == "one_cycle") return make_one_cycle(lr, total, optimizer);
  const Index warm_up_steps = lr.warm_up_steps;
  const optim::SchedulerPtr warm_up = make_warm_up(warm_up_steps, optimizer);
  if (lr.schedule == "constant") return warm_up;
  const optim::SchedulerPtr decay = make_decay(lr, total, optimizer);
  if (warm_up_steps == 0) return decay;
  return std::make_shared<optim::SequentialLR>(optimizer, std::vector{warm_up, decay},
                                               std::vector{warm_up_steps});
}

std::optional<Index> first_changed_rate(const optim::LrConfig& lr, double peak, Index done,
                                        Index steps, Index other_steps) {
  optim::SGD one({torch::zeros({1})}, optim::SGDOptions(peak).momentum(0.9)),
      other({torch::zeros({1})}, optim::SGDOptions(peak).momentum(0.9));
  const optim::SchedulerPtr schedule = make_schedule(lr, steps, one),
                            other_schedule = make_schedule(lr, other_steps, other);
  for (Index step = 0; step < done; ++step) {
    if (schedule->rate_at(step, 0, peak) != other_schedule->rate_at(step, 0, peak)) return step;
  }
  return std::nullopt;
}

}  // namespace hone::trainer
