// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <tuple>
#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

// The fields of Adam and AdamW.
template <class Derived, class LibOptions>
struct AdamFamilyOptions : WrappedOptions<Derived, LibOptions> {
  using Base = LibOptions;
  using Betas = std::tuple<double, double>;
  using WrappedOptions<Derived, LibOptions>::WrappedOptions;

  Derived& betas(Betas value) { return this->set(Base::betas(), value); }
  Derived& eps(double value) { return this->set(Base::eps(), value); }
  Derived& amsgrad(bool value) { return this->set(Base::amsgrad(), value); }
  const Betas& betas() const { return Base::betas(); }
  const double& eps() const { return Base::eps(); }
  const bool& amsgrad() const { return Base::amsgrad(); }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = AdamFamilyOptions::base_of(self);
    visit("lr", fields.lr());
    visit("betas", fields.betas());
    visit("eps", fields.eps());
    visit("weight_decay", fields.weight_decay());
    visit("amsgrad", fields.amsgrad());
    AdamFamilyOptions::visit_added(self, visit);
  }
};

struct AdamOptions : AdamFamilyOptions<AdamOptions, torch::optim::AdamOptions> {
  AdamOptions() : AdamFamilyOptions(Base()) {}
  using AdamFamilyOptions::AdamFamilyOptions;
};
// Weight decay is decoupled.
struct AdamWOptions : AdamFamilyOptions<AdamWOptions, torch::optim::AdamWOptions> {
  AdamWOptions() : AdamFamilyOptions(Base()) {}
  using AdamFamilyOptions::AdamFamilyOptions;
};

struct AdamParamState : AddedState<AdamParamState, torch::optim::AdamParamState> {};
struct AdamWParamState : AddedState<AdamWParamState, torch::optim::AdamWParamState> {};

// ---- the rule for RuleOptimizer

void step_adam_for_loop(ChainLists& lists, const kernels::AdamGroup& o);
void step_adam_foreach(ChainLists& lists, const kernels::AdamGroup& o);

template <class OwnOptions, class OwnState, bool kDecoupled>
struct AdamFamilyRule {
  static constexpr const char* kName = kDecoupled ? "AdamW" : "Adam";
  static constexpr bool kDecoupledDecay = kDecoupled;
  static constexpr StateNames kStateNames{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  static constexpr auto kStep = kernels::adam_step;
  using Options = OwnOptions;
  using GivenOptions = typename OwnOptions::Base;
  using State = OwnState;
  using Group = kernels::AdamGroup;

  static Group group_of(const Options& options) {
    const auto [beta1, beta2] = options.betas();
    return {.lr = options.lr(),
            .beta1 = beta1,
            .beta2 = beta2,
            .eps = options.eps(),
            .weight_decay = options.weight_decay(),
            .decoupled = kDecoupled,
            .amsgrad = options.amsgrad(),
            .maximize = options.maximize()};
  }
  static StateFields fields_of(State& state) {
    return {.step = &state.step(),
            .momentum = &state.exp_avg(),
            .second_moment = &state.exp_avg_sq(),
            .extra = &state.max_exp_avg_sq()};
  }
  static void step_for_loop(ChainLists& lists, const Options& options) {
    step_adam_for_loop(lists, group_of(options));
  }
  static void step_foreach(ChainLists& lists, const Options& options) {
    step_adam_foreach(lists, group_of(options));
  }
};
using AdamRule = AdamFamilyRule<AdamOptions, AdamParamState, false>;
using AdamWRule = AdamFamilyRule<AdamWOptions, AdamWParamState, true>;

extern template class RuleOptimizer<AdamRule>;
extern template class RuleOptimizer<AdamWRule>;

// ----

// torch::optim::Adam and AdamW on hone's kernels (formula: kernels/multi_tensor/rule/adam.h). They
// have the same class shape, option names and state. hone loads archives of LibTorch; options that
// LibTorch lacks get their defaults. LibTorch loads archives of hone with state in fp32, but
// ignores averages and additional options.
class Adam : public RuleOptimizer<AdamRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

class AdamW : public RuleOptimizer<AdamWRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace hone::optim
