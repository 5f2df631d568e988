// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/rule_table.h"

#include <algorithm>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::optim {
namespace {

using Optimizer = std::shared_ptr<MultiTensorOptimizer>;

// The enumerator that a configuration calls `name`. Configurations are checked before.
template <class Enum>
Enum enumerator(std::string_view name) {
  const auto names = names_of(Enum{});
  const auto found = std::ranges::find(names, name);
  HONE_CHECK(found != names.end(), "optim", "a value of docs/config.md", name);
  return static_cast<Enum>(found - names.begin());
}

// Matrices with weight decay, vectors without; embeddings, whose state has no codes; scaled ones.
template <class Rule, class Options>
Optimizer make_grouped(const OptimConfig& optim, ParameterSets sets, Options options) {
  options.state_dtype(enumerator<StateDtype>(optim.state_dtype)).weight_decay(*optim.weight_decay);
  Options without_decay = options, wide = options;
  without_decay.weight_decay(0);
  if (options.state_dtype() == StateDtype::Block8) wide.state_dtype(StateDtype::Float32);
  if constexpr (requires { options.sign_update(true); }) {
    for (Options* one : {&without_decay, &wide}) {
      one->sign_update(true).lr(kSignRate * options.lr());
    }
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  const auto add = [&](std::vector<torch::Tensor>& tensors, const Options& of, double factor) {
    auto own = std::make_unique<Options>(of);
    if (factor != 1) own->set_lr(factor * own->get_lr());
    groups.emplace_back(std::move(tensors), std::move(own));
  };
  add(sets.matrices, options, 1);
  add(sets.vectors, without_decay, 1);
  if (!sets.embeddings.empty()) add(sets.embeddings, wide, 1);
  if (!sets.scaled_matrices.empty()) add(sets.scaled_matrices, options, sets.scale);
  if (!sets.scaled_vectors.empty()) add(sets.scaled_vectors, without_decay, sets.scale);
  return std::make_shared<Rule>(groups, options);
}

Optimizer make_sgd(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<SGD>(optim, std::move(sets),
                           SGDOptions(peak).momentum(optim.momentum).nesterov(optim.nesterov));
}

template <class Rule, class Options>
Optimizer make_adam(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<Rule>(optim, std::move(sets),
                            Options(peak).betas({optim.beta1, *optim.beta2}).eps(optim.eps));
}

Optimizer make_adagrad(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<Adagrad>(optim, std::move(sets), AdagradOptions(peak).eps(optim.eps));
}

Optimizer make_rmsprop(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<RMSprop>(
      optim, std::move(sets),
      RMSpropOptions(peak).alpha(*optim.beta2).eps(optim.eps).momentum(optim.momentum));
}

Optimizer make_lion(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<Lion>(optim, std::move(sets),
                            LionOptions(peak).betas({optim.beta1, *optim.beta2}));
}

Optimizer make_muon(const OptimConfig& optim, double peak, ParameterSets sets) {
  return make_grouped<Muon>(
      optim, std::move(sets),
      MuonOptions(peak).momentum(optim.momentum).adjust_lr(MuonAdjust::MatchRmsAdamW));
}

template <class Rule, class Options>
Optimizer make_torque(const OptimConfig& optim, double peak, ParameterSets sets) {
  Options options(peak);
  options.momentum(optim.momentum).decay_rate(optim.decay_rate).eps(optim.eps);
  options.correlation_method(enumerator<CorrelationMethod>(optim.correlation_method));
  options.large_tensor_threshold(optim.large_tensor_threshold).use_inplace_ops(!optim.checked);
  if (optim.fixed_damping > 0) options.fixed_damping(optim.fixed_damping);
  if constexpr (requires { options.beta2(0.5); }) options.beta2(*optim.beta2);
  return make_grouped<Rule>(optim, std::move(sets), std::move(options));
}

Index one_moment(const OptimConfig&) { return 1; }
Index two_moments(const OptimConfig&) { return 2; }
Index momentum_alone(const OptimConfig& optim) { return optim.momentum == 0 ? 0 : 1; }
Index square_and_momentum(const OptimConfig& optim) { return 1 + momentum_alone(optim); }

using Keys = std::vector<std::string_view>;

std::vector<RuleEntry> elementwise_rules() {
  const Keys adam = {"optim.beta1", "optim.beta2", "optim.eps"};
  return {{.name = "sgd",
           .keys = {"optim.momentum", "optim.nesterov"},
           .lm = {.peak = 0.1, .weight_decay = 1e-4},
           .vision = {.peak = 0.05, .weight_decay = 1e-4},
           .moments = momentum_alone,
           .make = make_sgd},
          {.name = "adam",
           .keys = adam,
           .lm = {.peak = 4e-3, .beta2 = 0.95},
           .vision = {.peak = 2e-3},
           .moments = two_moments,
           .make = make_adam<Adam, AdamOptions>},
          {.name = "adamw",
           .keys = adam,
           .lm = {.peak = 4e-3, .weight_decay = 0.1, .beta2 = 0.95},
           .vision = {.peak = 3e-3, .weight_decay = 0.1},
           .decoupled_decay = true,
           .moments = two_moments,
           .make = make_adam<AdamW, AdamWOptions>},
          {.name = "adagrad",
           .keys = {"optim.eps"},
           .lm = {.peak = 0.02},
           .vision = {.peak = 5e-3},
           .moments = one_moment,
           .make = make_adagrad},
          {.name = "rmsprop",
           .keys = {"optim.momentum", "optim.beta2", "optim.eps"},
           .lm = {.peak = 4e-4, .beta2 = 0.95},
           .vision = {.peak = 3e-4, .beta2 = 0.95},
           .moments = square_and_momentum,
           .make = make_rmsprop},
          {.name = "lion",
           .keys = {"optim.beta1", "optim.beta2"},
           .lm = {.peak = 4e-4, .weight_decay = 0.1, .beta2 = 0.99},
           .vision = {.peak = 3e-4, .weight_decay = 0.1, .beta2 = 0.99},
           .decoupled_decay = true,
           .moments = one_moment,
           .make = make_lion}};
}

std::vector<RuleEntry> matrix_rules() {
  return {{.name = "muon",
           .keys = {"optim.momentum"},
           .lm = {.peak = 0.02, .weight_decay = 0.1},
           .vision = {.peak = 3e-3, .weight_decay = 0.1},
           .decoupled_decay = true,
           .separates_embeddings = true,
           .moments = one_moment,
           .workspace = muon_workspace,
           .make = make_muon}};
}

std::vector<RuleEntry> torque_rules() {
  const Keys torque = {
      "optim.momentum",      "optim.eps",     "optim.decay_rate", "optim.correlation_method",
      "optim.fixed_damping", "optim.checked", "optim.preset",     "optim.large_tensor_threshold"};
  Keys adaptive = torque;
  adaptive.push_back("optim.beta2");
  return {{.name = "tam",
           .keys = torque,
           .lm = {.peak = 0.2, .weight_decay = 1e-4},
           .vision = {.peak = 0.1, .weight_decay = 1e-4},
           .moments = one_moment,
           .make = make_torque<TAM, TAMOptions>},
          {.name = "adatam",
           .keys = adaptive,
           .lm = {.peak = 4e-4, .beta2 = 0.95},
           .vision = {.peak = 3e-4, .beta2 = 0.95},
           .moments = two_moments,
           .make = make_torque<AdaTAM, AdaTAMOptions>},
          {.name = "adatamw",
           .keys = adaptive,
           .lm = {.peak = 4e-4, .weight_decay = 0.1, .beta2 = 0.95},
           .vision = {.peak = 3e-4, .weight_decay = 0.1, .beta2 = 0.95},
           .decoupled_decay = true,
           .moments = two_moments,
           .make = make_torque<AdaTAMW, AdaTAMWOptions>}};
}

std::vector<RuleEntry> make_table() {
  std::vector<RuleEntry> all;
  for (const auto& rules : {elementwise_rules(), matrix_rules(), torque_rules()})
    all.insert(all.end(), rules.begin(), rules.end());
  return all;
}

}  // namespace

bool RuleEntry::reads(std::string_view key) const {
  return std::ranges::find(keys, key) != keys.end();
}

std::span<const RuleEntry> rule_entries() {
  static const std::vector<RuleEntry> table = make_table();
  return table;
}

const RuleEntry& find_entry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const RuleEntry& entry : rule_entries()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  fail_argument("optim.name", join_choices(names), name);
}

std::string readers_of(std::string_view key) {
  std::vector<std::string_view> names;
  for (const RuleEntry& entry : rule_entries()) {
    if (entry.reads(key)) names.push_back(entry.name);
  }
  return join_names(names);
}

std::vector<RuleDefaults> defaults_of(RuleDefaults RuleEntry::*job) {
  std::vector<RuleDefaults> out;
  for (const RuleEntry& entry : rule_entries()) {
    out.push_back(entry.*job);
    out.back().name = entry.name;
  }
  return out;
}

}  // namespace hone::optim
