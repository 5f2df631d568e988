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

// The state from which, together with its options, a scheduler continues bit for bit.
struct SchedulerState {
  std::string kind;                // "CosineLR", "SequentialLR(WarmupLR, CosineLR)"
  Index step = 0;                  // as Scheduler::last_step
  std::vector<double> base_rates;  // per group
};

void to_json(Json& json, const SchedulerState& state);
// Throws Error{CorruptFile} if the JSON is not such a state.
void from_json(const Json& json, SchedulerState& state);

// Base class of hone's schedulers: a torch::optim::LRScheduler over optimizers of LibTorch or hone,
// with the semantics of Python's torch.optim.lr_scheduler. The constructor sets the rates of step
// 0. Call step() after each optimizer step to set the rates of the next one. A rate is a closed
// form of step and base rate, so that a restored scheduler continues bit for bit.
//
// Base rates are the rates of the groups before the first existing scheduler of this optimizer was
// constructed (Python's initial_lr). Members of a composition may therefore be constructed in any
// order. The optimizer must outlive the scheduler. Errors are hone::Error and change nothing.
class Scheduler : public torch::optim::LRScheduler {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Steps since construction. The current rates are for this step (Python's last_epoch).
  Index last_step() const { return static_cast<Index>(step_count_) - 1; }
  // Current rates of the groups.
  std::vector<double> last_rates() const { return get_current_lrs(); }
  const std::vector<double>& base_rates() const { return base_rates_; }
  const torch::optim::Optimizer& optimizer() const { return optimizer_; }
  const std::string& kind() const { return kind_; }

  // Returns the rate of a group at `step` >= 0 for a base rate.
  virtual double rate_at(Index step, std::size_t group, double base) const = 0;
  // Sets values other than rates, such as OneCycleLR's momentum at `step`.
  virtual void apply_momentum(Index) {}

  SchedulerState state_dict() const;
  // Also sets the rates (and momentum) of the optimizer. Throws Error{InvalidArgument} if the state
  // is from another kind of scheduler or has another number of groups.
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
  std::shared_ptr<const std::vector<double>> initial_rates_;  // shares them with later schedulers
  std::vector<double> base_rates_;
};

// A scheduler of any kind, for compositions and for a choice at run time.
using SchedulerPtr = std::shared_ptr<Scheduler>;

}  // namespace hone::optim
