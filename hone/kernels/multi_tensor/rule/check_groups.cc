// SPDX-License-Identifier: Apache-2.0
// The ranges of a group's numbers; apart from the rules, so that code that needs nothing else links
// without Highway.
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "hone/kernels/multi_tensor/schedule/check_step.h"

namespace hone::kernels {

void check_group(const SGDGroup& group) {
  constexpr std::string_view kOp = "sgd_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "momentum", group.momentum);
  HONE_CHECK(std::isfinite(group.dampening), kOp, "finite dampening", group.dampening);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  HONE_CHECK(!group.nesterov || (group.momentum > 0 && group.dampening == 0), kOp,
             "momentum above 0 and no dampening with nesterov",
             concat("momentum ", group.momentum, ", dampening ", group.dampening));
}

void check_group(const AdamGroup& group) {
  constexpr std::string_view kOp = "adam_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "beta1", group.beta1);
  check_decay(kOp, "beta2", group.beta2);
  check_at_least_zero(kOp, "eps", group.eps);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
}

void check_group(const TAMGroup& group) {
  constexpr std::string_view kOp = "tam_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "momentum", group.momentum);
  check_decay(kOp, "decay_rate", group.decay_rate);
  check_decay(kOp, "beta2", group.beta2);
  check_at_least_zero(kOp, "eps", group.eps);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  check_at_least_zero(kOp, "eps_norm", group.eps_norm);
  check_at_least_zero(kOp, "eps_corr", group.eps_corr);
  if (group.fixed_damping) check_at_least_zero(kOp, "fixed_damping", *group.fixed_damping);
}

void check_group(const LionGroup& group) {
  constexpr std::string_view kOp = "lion_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "beta1", group.beta1);
  check_decay(kOp, "beta2", group.beta2);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
}

void check_group(const AdagradGroup& group) {
  constexpr std::string_view kOp = "adagrad_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_at_least_zero(kOp, "lr_decay", group.lr_decay);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  check_at_least_zero(kOp, "eps", group.eps);
}

void check_group(const RMSpropGroup& group) {
  constexpr std::string_view kOp = "rmsprop_step";
  check_at_least_zero(kOp, "lr", group.lr);
  check_decay(kOp, "alpha", group.alpha);
  check_at_least_zero(kOp, "eps", group.eps);
  check_at_least_zero(kOp, "weight_decay", group.weight_decay);
  check_decay(kOp, "momentum", group.momentum);
}

}  // namespace hone::kernels
