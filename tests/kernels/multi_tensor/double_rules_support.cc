// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/multi_tensor/double_rules_support.h"

#include "tests/kernels/multi_tensor/rule_oracles.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"

namespace hone::kernels::test {

DoubleState::DoubleState(hone::test::TensorSet& set, Index tensor) {
  const auto widen = [&](std::vector<std::vector<float>>& list) {
    const auto from = set.values(list, tensor);
    return std::vector<double>(from.begin(), from.end());
  };
  param = widen(set.param);
  momentum = widen(set.momentum);
  second_moment = widen(set.second_moment);
  extra = widen(set.extra);
}

BasicChunkOperands<double> DoubleState::operands() {
  const auto at = [](std::vector<double>& list) { return list.empty() ? nullptr : list.data(); };
  return {at(param),         grad.data(), at(momentum),
          at(second_moment), at(extra),   static_cast<Index>(grad.size())};
}

namespace {

// A rule without correlation.
template <class Group, class Step>
DoubleRule plain_rule(const char* name, const Group& group, const Step& step) {
  const RuleSlots used = rule_slots(group);
  return {name,
          {.momentum = used.momentum, .second_moment = used.second_moment, .extra = used.extra},
          [=](const MultiTensorPlan& plan, std::span<double>, const StepControl& control,
              Executor& executor) {
            return step(plan, {&group, 1}, control, executor);
          },
          [=](DoubleState& state, Index t) { oracle_step(group, t, state.operands()); }};
}

DoubleRule sgd_rule(const char* name, const SGDGroup& group) {
  return plain_rule(name, group, sgd_step);
}
DoubleRule adam_rule(const char* name, const AdamGroup& group) {
  return plain_rule(name, group, adam_step);
}
DoubleRule adagrad_rule(const char* name, const AdagradGroup& group) {
  return plain_rule(name, group, adagrad_step);
}
DoubleRule rmsprop_rule(const char* name, const RMSpropGroup& group) {
  return plain_rule(name, group, rmsprop_step);
}

DoubleRule tam_rule(const char* name, const TAMGroup& group, bool adaptive) {
  return {name,
          {.second_moment = adaptive},
          [=](const MultiTensorPlan& plan, std::span<double> s, const StepControl& control,
              Executor& executor) {
            return tam_step(plan, {&group, 1}, TAMScope::Tensor, s, control, executor);
          },
          [=](DoubleState& state, Index t) {
            double sums[6];
            gather_reference<double>(Statistics::TorqueWithDecay, state.operands(), sums);
            const Torque torque =
                effective_torque({sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]}, 1, group);
            state.correlation = group.decay_rate * state.correlation +
                                (1 - group.decay_rate) * torque_cosine(torque, group, group.guard);
            oracle_step(group, state.correlation, t, state.operands());
          }};
}

}  // namespace

// Where λθ cancels the gradient, Adam's first step magnifies the rounding of λ to fp32, and that of
// 1 - ηλ drifts with every step, as in LibTorch: neither is the kernel's, so λ and ηλ are powers of
// two here.
std::vector<DoubleRule> double_rules() {
  return {
      sgd_rule("sgd", {.lr = 0.01, .weight_decay = 0.01}),
      sgd_rule("momentum", {.lr = 0.01, .momentum = 0.9, .dampening = 0.1, .maximize = true}),
      sgd_rule("nesterov", {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      adam_rule("adam", {.lr = 0.01, .weight_decay = 0x1p-7, .decoupled = false}),
      adam_rule("adamw", {.lr = 0x1p-7, .weight_decay = 0x1p-3}),
      adam_rule("amsgrad",
                {.lr = 0x1p-7, .weight_decay = 0x1p-3, .amsgrad = true, .maximize = true}),
      adagrad_rule("adagrad", {.lr = 0.01, .lr_decay = 0.1}),
      adagrad_rule("adagrad_l2", {.lr = 0.01, .weight_decay = 0x1p-7, .maximize = true}),
      rmsprop_rule("rmsprop", {.lr = 0.01, .weight_decay = 0x1p-7}),
      rmsprop_rule("rmsprop_momentum", {.lr = 0.01, .momentum = 0.9, .maximize = true}),
      rmsprop_rule("rmsprop_centered", {.lr = 0.01, .eps = 1e-2, .centered = true}),
      rmsprop_rule("rmsprop_all",
                   {.lr = 0.01, .alpha = 0.75, .eps = 1e-2, .momentum = 0.5, .centered = true}),
      tam_rule("tam", {.lr = 0.01, .weight_decay = 0.01}, false),
      tam_rule("tam_decoupled",
               {.lr = 0x1p-7, .weight_decay = 0x1p-3, .decoupled = true, .maximize = true}, false),
      tam_rule("adatam", {.lr = 0x1p-13, .weight_decay = 0x1p-7}, true),
      tam_rule("adatamw", {.lr = 0x1p-13, .weight_decay = 0x1p-3, .decoupled = true}, true),
  };
}

DoubleRule lion_double_rule() {
  return plain_rule("lion", LionGroup{.lr = 0x1p-10, .weight_decay = 0x1p-3, .maximize = true},
                    lion_step);
}

}  // namespace hone::kernels::test
