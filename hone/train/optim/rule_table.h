// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "hone/train/optim/multi_tensor_optimizer.h"
#include "hone/train/optim/optim_config.h"

namespace hone::optim {

// The parameters of a module, sorted into groups.
struct ParameterSets {
  std::vector<torch::Tensor> matrices, vectors;
  std::vector<torch::Tensor> embeddings;  // separate only if the rule or the state type requires it
  std::vector<torch::Tensor> scaled_matrices, scaled_vectors;  // at `scale` times the rate
  double scale = 1;
};

// One optimizer rule, with the name of `optim.name`: all that configurations, memory predictions,
// the trainer and `hone bench optim` need. To add a rule, add a row to rule_entries().
struct RuleEntry {
  std::string_view name;
  std::vector<std::string_view> keys = {};  // of [optim], besides weight_decay and state_dtype
  RuleDefaults lm, vision;                  // good values for the default model of a job
  bool decoupled_decay = false;
  bool separates_embeddings = false;  // embeddings and output matrices are not hidden matrices
  // Number of state tensors of a parameter's size.
  Index (*moments)(const OptimConfig& optim);
  // Number of floats that the update of a matrix [rows, cols] uses temporarily; null: none.
  Index (*workspace)(Index rows, Index cols) = nullptr;
  // `optim` must not have values at "auto".
  std::shared_ptr<MultiTensorOptimizer> (*make)(const OptimConfig& optim, double peak,
                                                ParameterSets parameters);

  bool reads(std::string_view key) const;  // "optim.beta1"
  bool is_torque() const { return reads("optim.correlation_method"); }
};

std::span<const RuleEntry> rule_entries();
// Throws Error{InvalidArgument} that lists the known names if the name is unknown.
const RuleEntry& find_entry(std::string_view name);
// "sgd, adam, adamw": the rules that read a key.
std::string readers_of(std::string_view key);
// The defaults of a job, &RuleEntry::lm or &RuleEntry::vision, by rule.
std::vector<RuleDefaults> defaults_of(RuleDefaults RuleEntry::*job);

}  // namespace hone::optim
