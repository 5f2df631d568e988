// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/lr/one_cycle_lr.h"

namespace hone::trainer {
namespace {

using torch::optim::Optimizer;

optim::SchedulerPtr make_one_cycle(const LmConfig& config, Optimizer& optimizer) {
  optim::OneCycleLROptions options;
  for (const auto& group : optimizer.param_groups()) {
    options.max_lr.push_back(group.options().get_lr());
  }
  options.total_steps = config.trainer.steps;
  options.pct_start = config.lr.rise;
  options.cycle_momentum = config.lr.cycle_momentum;
  options.final_div_factor = 1 / (options.div_factor * config.lr.final_ratio);
  return std::make_shared<optim::OneCycleLR>(optimizer, std::move(options));
}

// Step W-1 has the whole peak already.
optim::SchedulerPtr make_warm_up(Index steps, Optimizer& optimizer) {
  const double start = steps > 0 ? 1 / static_cast<double>(steps) : 1;
  return std::make_shared<optim::WarmupLR>(
      optimizer, optim::WarmupLROptions{.steps = std::max<Index>(0, steps - 1), .start = start});
}

optim::SchedulerPtr make_decay(const LmConfig& config, Optimizer& optimizer) {
  const Index steps = std::max<Index>(1, config.trainer.steps - config.lr.warm_up_steps);
  const double least = config.lr.final_ratio * peak_of(config);
  if (config.lr.schedule == "linear") {
    return std::make_shared<optim::PolynomialLR>(optimizer, steps, /*power=*/1, least);
  }
  HONE_CHECK(config.lr.schedule == "cosine", "lr.schedule", "cosine, linear, constant or one_cycle",
             config.lr.schedule);
  return std::make_shared<optim::CosineLR>(optimizer, steps, least);
}

}  // namespace

optim::SchedulerPtr make_schedule(const LmConfig& config, Optimizer& optimizer) {
  if (config.lr.schedule == "one_cycle") return make_one_cycle(config, optimizer);
  const Index warm_up_steps = config.lr.warm_up_steps;
  const optim::SchedulerPtr warm_up = make_warm_up(warm_up_steps, optimizer);
  if (config.lr.schedule == "constant") return warm_up;
  const optim::SchedulerPtr decay = make_decay(config, optimizer);
  if (warm_up_steps == 0) return decay;
  return std::make_shared<optim::SequentialLR>(optimizer, std::vector{warm_up, decay},
                                               std::vector{warm_up_steps});
}

}  // namespace hone::trainer
