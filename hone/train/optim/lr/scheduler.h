// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/core/file/json_io.h"
#include "hone/core/index.h"

namespace hone::optim {

// Where a scheduler stands. With the options it was made with, all it needs to go on bit for bit.
struct SchedulerState {
  std::string kind;                // "CosineLR", "SequentialLR(WarmupLR, CosineLR)"
  Index step = 0;                  // as Scheduler::last_step
  std::vector<double> base_rates;  // per group
};

void to_json(Json& json, const SchedulerState& state);
// Error{CorruptFile} for JSON that is no such state.
void from_json(const Json& json, SchedulerState& state);

// What hone's schedulers share: a torch::optim::LRScheduler, over LibTorch's optimizers and hone's,
// with the semantics of Python's torch.optim.lr_scheduler. Construction sets the rates of step 0;
// each step() after an optimizer's step sets those of the next one. A rate is a closed form of step
// and base rate, so that a restored scheduler continues with the same bits.
//
// Base rates are the rates that the groups had before the first living scheduler of this optimizer
// was made (what Python keeps as initial_lr): members of a composition may be made in any order.
// The optimizer must outlive the scheduler. Errors are hone::Error and change nothing.
class Scheduler : public torch::optim::LRScheduler {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Steps since construction: the rates set now are those of this step (Python's last_epoch).
  Index last_step() const { return static_cast<Index>(step_count_) - 1; }
  // What the groups have now.
  std::vector<double> last_rates() const { return get_current_lrs(); }
  const std::vector<double>& base_rates() const { return base_rates_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  const std::string& kind() const { return kind_; }

  // Rate of a group at `step` >= 0 over a base rate.
  virtual double rate_at(Index step, std::size_t group, double base) const = 0;
  // Sets what a scheduler moves besides the rates: OneCycleLR's momentum at `step`.
  virtual void apply_momentum(Index) {}

  SchedulerState state_dict() const;
  // Sets the optimizer's rates (and momentum) too. Error{InvalidArgument} when the state is that of
  // another kind of scheduler or of another number of groups.
  void load_state_dict(const SchedulerState& state);

 protected:
  // A derived constructor ends with step(), which sets the rates of step 0.
  Scheduler(torch::optim::Optimizer& optimizer, std::string kind);

  std::size_t groups() const { return base_rates_.size(); }
  torch::optim::Optimizer& mutable_optimizer() { return optimizer_; }

 private:
  std::vector<double> get_lrs() final;
  std::vector<double> rates_at(Index step, std::span<const double> base_rates) const;

  torch::optim::Optimizer& optimizer_;
  std::string kind_;
  std::shared_ptr<const std::vector<double>> initial_rates_;  // keeps them known to later ones
  std::vector<double> base_rates_;
};

// One of any kind, as compositions take them and as a program keeps one that is chosen as it runs.
using SchedulerPtr = std::shared_ptr<Scheduler>;

}  // namespace hone::optim
