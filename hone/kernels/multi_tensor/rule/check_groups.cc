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
namespace {

// What every group has.
template <class Group>
void check_rates(std::string_view op, const Group& group) {
  check_at_least_zero(op, "lr", group.lr);
  check_at_least_zero(op, "weight_decay", group.weight_decay);
}

}  // namespace

void check_group(std::string_view op, const SGDGroup& group) {
  check_rates(op, group);
  check_decay(op, "momentum", group.momentum);
  HONE_CHECK(std::isfinite(group.dampening), op, "finite dampening", group.dampening);
  HONE_CHECK(!group.nesterov || (group.momentum > 0 && group.dampening == 0), op,
             "momentum above 0 and no dampening with nesterov",
             concat("momentum ", group.momentum, ", dampening ", group.dampening));
}

void check_group(std::string_view op, const AdamGroup& group) {
  check_rates(op, group);
  check_decay(op, "beta1", group.beta1);
  check_decay(op, "beta2", group.beta2);
  check_at_least_zero(op, "eps", group.eps);
}

void check_group(std::string_view op, const TAMGroup& group) {
  check_rates(op, group);
  check_decay(op, "momentum", group.momentum);
  check_decay(op, "decay_rate", group.decay_rate);
  check_decay(op, "beta2", group.beta2);
  check_at_least_zero(op, "eps", group.eps);
  check_at_least_zero(op, "eps_norm", group.eps_norm);
  check_at_least_zero(op, "eps_corr", group.eps_corr);
  if (group.fixed_damping) check_at_least_zero(op, "fixed_damping", *group.fixed_damping);
}

void check_group(std::string_view op, const LionGroup& group) {
  check_rates(op, group);
  check_decay(op, "beta1", group.beta1);
  check_decay(op, "beta2", group.beta2);
}

void check_group(std::string_view op, const AdagradGroup& group) {
  check_rates(op, group);
  check_at_least_zero(op, "lr_decay", group.lr_decay);
  check_at_least_zero(op, "eps", group.eps);
}

void check_group(std::string_view op, const RMSpropGroup& group) {
  check_rates(op, group);
  check_decay(op, "alpha", group.alpha);
  check_at_least_zero(op, "eps", group.eps);
  check_decay(op, "momentum", group.momentum);
}

}  // namespace hone::kernels
