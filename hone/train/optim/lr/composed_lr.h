// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "hone/train/optim/lr/scheduler.h"

namespace hone::optim {

// Schedulers made of others over the same optimizer. Only the outermost one is stepped.

enum class WarmupShape { Linear, Constant };

struct WarmupLROptions {
  Index steps = 0;                          // W
  double start = 0;                         // factor of step 0, 0 to 1
  WarmupShape shape = WarmupShape::Linear;  // Constant: `start` until step W
};

// For t < W: η₀(start + (1 - start)t/W), or η₀·start. Then η₀, or the rate of `inner` at step t -
// W.
class WarmupLR final : public Scheduler {
 public:
  WarmupLR(torch::optim::Optimizer& optimizer, const WarmupLROptions& options,
           SchedulerPtr inner = nullptr);
  double rate_at(Index step, std::size_t group, double base) const override;
  void apply_momentum(Index step) override;

 private:
  WarmupLROptions options_;
  SchedulerPtr inner_;
};

// Each member takes the rate of the previous member as its base rate. If each rate is a multiple of
// its base rate, the result is the product of all factors. Python's ChainedScheduler gives the same
// for members that multiply the current rate, including CosineLR with η_min = 0 up to its T.
class ChainedLR final : public Scheduler {
 public:
  ChainedLR(torch::optim::Optimizer& optimizer, std::vector<SchedulerPtr> members);
  double rate_at(Index step, std::size_t group, double base) const override;
  void apply_momentum(Index step) override;

 private:
  std::vector<SchedulerPtr> members_;
};

// Uses member k from milestone k-1 (member 0 from step 0) to milestone k. Each member counts from
// 0.
class SequentialLR final : public Scheduler {
 public:
  SequentialLR(torch::optim::Optimizer& optimizer, std::vector<SchedulerPtr> members,
               std::vector<Index> milestones);
  double rate_at(Index step, std::size_t group, double base) const override;
  void apply_momentum(Index step) override;

 private:
  std::size_t member_at(Index step) const;
  Index begin_of(std::size_t member) const { return member == 0 ? 0 : milestones_[member - 1]; }

  std::vector<SchedulerPtr> members_;
  std::vector<Index> milestones_;
};

}  // namespace hone::optim
