// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adagrad.h>

#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

struct AdagradOptions : WrappedOptions<AdagradOptions, torch::optim::AdagradOptions> {
  AdagradOptions() : WrappedOptions(Base()) {}
  using WrappedOptions::WrappedOptions;

  AdagradOptions& lr_decay(double value) { return set(Base::lr_decay(), value); }
  AdagradOptions& initial_accumulator_value(double value) {
    return set(Base::initial_accumulator_value(), value);
  }
  AdagradOptions& eps(double value) { return set(Base::eps(), value); }
  const double& lr_decay() const { return Base::lr_decay(); }
  const double& initial_accumulator_value() const { return Base::initial_accumulator_value(); }
  const double& eps() const { return Base::eps(); }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = base_of(self);
    visit("lr", fields.lr());
    visit("lr_decay", fields.lr_decay());
    visit("weight_decay", fields.weight_decay());
    visit("initial_accumulator_value", fields.initial_accumulator_value());
    visit("eps", fields.eps());
    visit_added(self, visit);
  }
};

struct AdagradParamState : AddedState<AdagradParamState, torch::optim::AdagradParamState> {};

// ---- the rule for RuleOptimizer

struct AdagradRule {
  static constexpr const char* kName = "Adagrad";
  static constexpr bool kDecoupledDecay = false;
  static constexpr StateNames kStateNames{"", "sum", ""};
  static constexpr auto kStep = kernels::adagrad_step;
  using Options = AdagradOptions;
  using GivenOptions = torch::optim::AdagradOptions;
  using State = AdagradParamState;
  using Group = kernels::AdagradGroup;

  static Group group_of(const Options& options);
  static float initial_second_moment(const Options& options);
  static StateFields fields_of(State& state);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

extern template class RuleOptimizer<AdagradRule>;

// ----

// torch::optim::Adagrad on hone's kernels (formula: kernels/multi_tensor/rule/adagrad.h). Has the
// same class shape and option names. Creates sums at the first step, not in the constructor. Sums
// in 8 bits or bf16 are rounded stochastically.
//
// hone loads archives of LibTorch; options that LibTorch lacks get their defaults. LibTorch loads
// archives of hone with sums in fp32, but ignores averages and additional options. For a parameter
// that hone had not stepped, LibTorch keeps its own sum.
class Adagrad : public RuleOptimizer<AdagradRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace hone::optim
