// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/rmsprop.h>

#include <vector>

#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

struct RMSpropOptions : WrappedOptions<RMSpropOptions, torch::optim::RMSpropOptions> {
  RMSpropOptions() : WrappedOptions(Base()) {}
  using WrappedOptions::WrappedOptions;

  RMSpropOptions& alpha(double value) { return set(Base::alpha(), value); }
  RMSpropOptions& eps(double value) { return set(Base::eps(), value); }
  RMSpropOptions& momentum(double value) { return set(Base::momentum(), value); }
  RMSpropOptions& centered(bool value) { return set(Base::centered(), value); }
  const double& alpha() const { return Base::alpha(); }
  const double& eps() const { return Base::eps(); }
  const double& momentum() const { return Base::momentum(); }
  const bool& centered() const { return Base::centered(); }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = base_of(self);
    visit("lr", fields.lr());
    visit("alpha", fields.alpha());
    visit("eps", fields.eps());
    visit("weight_decay", fields.weight_decay());
    visit("momentum", fields.momentum());
    visit("centered", fields.centered());
    visit_added(self, visit);
  }
};

struct RMSpropParamState : AddedState<RMSpropParamState, torch::optim::RMSpropParamState> {};

// ---- the rule for RuleOptimizer

struct RMSpropRule {
  static constexpr const char* kName = "RMSprop";
  static constexpr bool kDecoupledDecay = false;
  static constexpr StateNames kStateNames{"momentum_buffer", "square_avg", "grad_avg"};
  static constexpr auto kStep = kernels::rmsprop_step;
  using Options = RMSpropOptions;
  using GivenOptions = torch::optim::RMSpropOptions;
  using State = RMSpropParamState;
  using Group = kernels::RMSpropGroup;

  static Group group_of(const Options& options);
  static StateFields fields_of(State& state);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

extern template class RuleOptimizer<RMSpropRule>;

// ----

// torch::optim::RMSprop on hone's kernels (formula: kernels/multi_tensor/rule/rmsprop.h). Has the
// same class shape, option names and state: fp32 state of either loads into the other. If rounding
// makes a centered variance negative, it counts as 0; in LibTorch the square root is then NaN.
class RMSprop : public RuleOptimizer<RMSpropRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace hone::optim
