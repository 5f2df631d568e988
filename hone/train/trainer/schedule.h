// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "hone/train/optim/lr/composed_lr.h"
#include "hone/train/optim/optim_config.h"

namespace hone::trainer {

// Creates the schedule of [lr] for a run of `steps`. The current rate of a group is its peak p.
// With W warm-up steps, T steps and s from 0, the rate is p(s+1)/W for s < W. Then, over step s-W
// of T-W, it is a half cosine or a line from p to final_ratio·p, or constant p. One cycle: from
// p/25 to p over the first lr.rise of the steps, then to final_ratio·p at the last one.
optim::SchedulerPtr make_schedule(const optim::LrConfig& lr, Index steps,
                                  torch::optim::Optimizer& optimizer);

// Returns the first of `done` steps, from 0, whose learning rate differs between a run of `steps`
// and a run of `other_steps` at the same peak; empty if none differs.
std::optional<Index> first_changed_rate(const optim::LrConfig& lr, double peak, Index done,
                                        Index steps, Index other_steps);

}  // namespace hone::trainer
