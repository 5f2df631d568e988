// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/sgd.h>

#include <utility>
#include <vector>

#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/train/optim/rule_optimizer.h"

namespace hone::optim {

struct SGDOptions : WrappedOptions<SGDOptions, torch::optim::SGDOptions> {
  using WrappedOptions::WrappedOptions;

  SGDOptions& momentum(double value) { return set(Base::momentum(), value); }
  SGDOptions& dampening(double value) { return set(Base::dampening(), value); }
  SGDOptions& nesterov(bool value) { return set(Base::nesterov(), value); }
  const double& momentum() const { return Base::momentum(); }
  const double& dampening() const { return Base::dampening(); }
  const bool& nesterov() const { return Base::nesterov(); }

  template <class Self, class Visit>
  static void visit_fields(Self& self, const Visit& visit) {
    auto& fields = base_of(self);
    visit("lr", fields.lr());
    visit("momentum", fields.momentum());
    visit("dampening", fields.dampening());
    visit("weight_decay", fields.weight_decay());
    visit("nesterov", fields.nesterov());
    visit_added(self, visit);
  }
};

// LibTorch's momentum_buffer, and the number of steps (the first step sets the buffer). Archives of
// LibTorch have no step: a buffer in one counts as stepped.
struct CountedSGDState : torch::optim::SGDParamState {
  TORCH_ARG(int64_t, step) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};
struct SGDParamState : AddedState<SGDParamState, CountedSGDState> {};

// ---- the rule for RuleOptimizer

struct SGDRule {
  static constexpr const char* kName = "SGD";
  static constexpr bool kDecoupledDecay = false;
  static constexpr StateNames kStateNames{"momentum_buffer", "", ""};
  static constexpr auto kStep = kernels::sgd_step;
  using Options = SGDOptions;
  using GivenOptions = torch::optim::SGDOptions;
  using State = SGDParamState;
  using Group = kernels::SGDGroup;

  static Group group_of(const Options& options);
  static StateFields fields_of(State& state);
  static void step_for_loop(ChainLists& lists, const Options& options);
  static void step_foreach(ChainLists& lists, const Options& options);
};

extern template class RuleOptimizer<SGDRule>;

// ----

// torch::optim::SGD on hone's kernels (formula: kernels/multi_tensor/rule/sgd.h). Has the same
// class shape and option names. If one group has momentum, all groups have a buffer. hone loads
// archives of LibTorch: a buffer gets step 1, and options that LibTorch lacks get their defaults.
// LibTorch loads archives of hone with buffers in fp32, but ignores steps, averages and additional
// options.
class SGD : public RuleOptimizer<SGDRule> {
 public:
  using RuleOptimizer::RuleOptimizer;
};

}  // namespace hone::optim
