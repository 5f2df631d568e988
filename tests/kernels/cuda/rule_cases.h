// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/kernels/multi_tensor/cuda/rule_policy.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/multi_tensor/rule_oracles.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

// Every rule beside its double reference; for the device code on the host and on a device.
namespace hone::kernels::cuda::test {

using hone::test::TensorSet;
using hone::test::TensorSetOptions;

struct DoubleState {
  std::vector<double> param, grad, momentum, second_moment, extra;
  double correlation = 0;

  BasicChunkOperands<double> operands(const TensorSetOptions& used) {
    return {param.data(),
            grad.data(),
            used.momentum ? momentum.data() : nullptr,
            used.second_moment ? second_moment.data() : nullptr,
            used.extra ? extra.data() : nullptr,
            static_cast<Index>(grad.size())};
  }
};

// All tensors of a set in double, stepped by `reference(state, operands, t)`.
class ReferenceRun {
 public:
  ReferenceRun(TensorSet& set, const TensorSetOptions& options) : options_(options) {
    for (Index i = 0; i < set.tensors(); ++i) {
      const auto from = set.values(set.param, i);
      DoubleState state;
      state.param.assign(from.begin(), from.end());
      state.momentum = state.second_moment = state.extra = std::vector(from.size(), 0.0);
      way_.push_back(state.extra);
      states_.push_back(std::move(state));
    }
  }

  template <class Reference>
  void step(TensorSet& set, Index t, const Reference& reference) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      DoubleState& state = states_[i];
      const auto before = state.param;
      const auto grad = set.grad(static_cast<Index>(i));
      state.grad.assign(grad.begin(), grad.end());
      reference(state, state.operands(options_), t);
      for (std::size_t e = 0; e < before.size(); ++e) {
        way_[i][e] += std::abs(state.param[e] - before[e]);
      }
    }
  }

  // |θ - reference| at most 8 u sqrt(steps) of max(|θ|, Σ|Δθ|), u = 2^-24.
  void expect_equal(TensorSet& set, Index steps, const char* name) const {
    const double tolerance = 8 * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(steps));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const auto param = set.values(set.param, static_cast<Index>(i));
      for (std::size_t e = 0; e < param.size(); ++e) {
        const double wanted = states_[i].param[e];
        ASSERT_NEAR(param[e], wanted, tolerance * std::max(std::abs(wanted), way_[i][e]))
            << name << " tensor " << i << " element " << e;
      }
    }
  }

 private:
  TensorSetOptions options_;
  std::vector<DoubleState> states_;
  std::vector<std::vector<double>> way_;  // Σ|Δθ|
};

inline auto tam_reference(const TAMGroup& group) {
  return [group](DoubleState& state, const BasicChunkOperands<double>& chunk, Index t) {
    double s[6];
    gather_reference<double>(Statistics::TorqueWithDecay, chunk, s);
    const Torque torque = effective_torque({s[0], s[1], s[2], s[3], s[4], s[5]}, 1, group);
    state.correlation = group.decay_rate * state.correlation +
                        (1 - group.decay_rate) * torque_cosine(torque, group, group.guard);
    kernels::test::oracle_step(group, state.correlation, t, chunk);
  };
}

template <class Policy>
struct RuleCase {
  using PolicyType = Policy;
  const char* name;
  typename Policy::Group group;
  TensorSetOptions options;
};

// visit(RuleCase<Policy>, reference) for every rule. λ and ηλ are powers of two where their
// rounding to fp32 would be what is measured. Lion has tests of its own: its sign is not
// continuous.
template <class Visit>
void for_each_rule_case(const Visit& visit) {
  const auto plain = [&](auto rule) {
    visit(rule, [=](DoubleState&, const auto& chunk, Index t) {
      kernels::test::oracle_step(rule.group, t, chunk);
    });
  };
  using namespace scalar_rule;
  plain(RuleCase<RulePolicy<SGDGroup, SGDRule>>{
      "sgd", {.lr = 0.01, .weight_decay = 0.01}, {.momentum = false}});
  plain(RuleCase<RulePolicy<SGDGroup, SGDMomentumRule>>{
      "nesterov", {.lr = 0.01, .momentum = 0.9, .nesterov = true, .maximize = true}, {}});
  plain(RuleCase<RulePolicy<AdamGroup, AdamRule>>{
      "adamw", {.lr = 0x1p-7, .weight_decay = 0x1p-3}, {.second_moment = true}});
  plain(RuleCase<RulePolicy<AdamGroup, AMSGradRule>>{
      "amsgrad", {.lr = 0.01, .amsgrad = true}, {.second_moment = true, .extra = true}});
  plain(RuleCase<RulePolicy<AdagradGroup, AdagradRule>>{
      "adagrad", {.lr = 0.01, .lr_decay = 0.1}, {.momentum = false, .second_moment = true}});
  plain(RuleCase<RulePolicy<RMSpropGroup, RMSpropRule>>{
      "rmsprop", {.lr = 0.01}, {.momentum = false, .second_moment = true}});
  plain(RuleCase<RulePolicy<RMSpropGroup, CenteredRMSpropMomentumRule>>{
      "rmsprop_all",
      {.lr = 0.01, .alpha = 0.75, .eps = 1e-2, .momentum = 0.5, .centered = true},
      {.second_moment = true, .extra = true}});
  const RuleCase<RulePolicy<TAMGroup, TAMRule>> tam{"tam", {.lr = 0.01, .weight_decay = 0.01}, {}};
  visit(tam, tam_reference(tam.group));
  const RuleCase<RulePolicy<TAMGroup, AdaTAMRule>> adatamw{
      "adatamw",
      {.lr = 0x1p-13, .weight_decay = 0x1p-3, .decoupled = true},
      {.second_moment = true}};
  visit(adatamw, tam_reference(adatamw.group));
}

}  // namespace hone::kernels::cuda::test
