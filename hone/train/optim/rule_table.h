// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/optim/optim_config.h"

namespace hone::optim {

// A module's parameters, sorted by what their groups have in common.
struct ParameterSets {
  std::vector<torch::Tensor> matrices, vectors;
  std::vector<torch::Tensor> embeddings;  // apart only where the rule or the type of state asks
  std::vector<torch::Tensor> scaled_matrices, scaled_vectors;  // at `scale` times the rate
  double scale = 1;
};

// One optimizer rule, as `optim.name` calls it: everything that configurations, memory predictions,
// the trainer and `hone bench optim` know of it. A new rule is a row of rule_entries().
struct RuleEntry {
  std::string_view name;
  std::vector<std::string_view> keys;  // of [optim], besides weight_decay and state_dtype
  RuleDefaults lm, vision;             // what trains the default model of a job well
  bool decoupled_decay = false;
  bool separates_embeddings = false;  // embeddings and output matrices are no hidden matrices to it
  // Tensors of a parameter's size that it keeps.
  Index (*moments)(const OptimConfig& optim);
  // Floats that its step takes for a matrix [rows, cols] while it updates it; null: none.
  Index (*workspace)(Index rows, Index cols) = nullptr;
  // `optim` has no value at auto.
  std::shared_ptr<MultiTensorOptimizer> (*make)(const OptimConfig& optim, double peak,
                                                ParameterSets parameters);

  bool reads(std::string_view key) const;  // "optim.beta1"
  bool is_torque() const { return reads("optim.correlation_method"); }
};

std::span<const RuleEntry> rule_entries();
// Error{InvalidArgument} naming the known ones on another name.
const RuleEntry& find_entry(std::string_view name);
// "sgd, adam, adamw": the rules that read a key.
std::string readers_of(std::string_view key);
// The defaults of a job, &RuleEntry::lm or &RuleEntry::vision, by rule.
std::vector<RuleDefaults> defaults_of(RuleDefaults RuleEntry::*job);

}  // namespace hone::optim
