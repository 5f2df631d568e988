// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adam.h>

#include <tuple>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

// Options of Lion, with names as in LibTorch's other optimizers (LibTorch has no Lion). Weight
// decay is decoupled.
struct LionOptions : PlainOptions<LionOptions> {
  using Betas = std::tuple<double, double>;

  LionOptions() = default;
  LionOptions(double value) { lr(value); }  // NOLINT: as LibTorch's options

  LionOptions& lr(double value) { return set(lr_, value); }
  LionOptions& betas(Betas value) { return set(betas_, value); }
  LionOptions& weight_decay(double value) { return set(weight_decay_, value); }
  double lr() const { return lr_; }
  const Betas& betas() const { return betas_; }
  double weight_decay() const { return weight_decay_; }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    visit("lr", self.lr_);
    visit("betas", self.betas_);
    visit("weight_decay", self.weight_decay_);
    visit_added(self, visit);
  }

 private:
  double lr_ = 1e-4;
  Betas betas_ = {0.9, 0.99};
  double weight_decay_ = 0;
};

// The state has the step and exp_avg of Adam. Archives omit undefined fields.
struct LionParamState : AddedState<LionParamState, torch::optim::AdamParamState> {};

// ---- the rule for RuleOptimizer

struct LionRule {
  static constexpr const char* kName = "Lion";
  static constexpr bool kDecoupledDecay = true;
  static constexpr StateNames kStateNames{"exp_avg", "", ""};
  static constexpr auto kStep = kernels::lion_step;
  using Options = LionOptions;
  using GivenOptions = LionOptions;
  using State = LionParamState;
  using Group = kernels::LionGroup;

  static Group group_of(const Options& options);
  static StateFields fields_of(State& state);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

extern template class RuleOptimizer<LionRule>;

// ----

// Lion on hone's kernels (formula: kernels/multi_tensor/rule/lion.h).
class Lion : public RuleOptimizer<LionRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace hone::optim
