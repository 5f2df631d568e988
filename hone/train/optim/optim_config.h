// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hone/core/config/config_table.h"

namespace hone::optim {

inline constexpr std::string_view kNoPreset = "none";

// [optim]: a rule and its numbers. A number at "auto" takes the rule's value from the job's
// RuleTable.
struct OptimConfig {
  std::string name = "adamw";  // one of rule_entries()
  std::optional<double> weight_decay = {};
  double beta1 = 0.9;
  std::optional<double> beta2 = {};
  double eps = 1e-8;
  double momentum = 0.9;
  bool nesterov = false;
  double decay_rate = 0.9;
  std::string correlation_method = "manual";  // auto, cosine_similarity, vectorized
  double fixed_damping = 0;                   // 0: none
  Index large_tensor_threshold = 1000;        // for correlation_method "auto"
  bool checked = false;
  std::string state_dtype = "fp32";  // bf16, 8bit
  // high_performance, stable, large_model, memory_limited, for_model_size: TAMOptions' presets.
  std::string preset{kNoPreset};
};

// [lr]
struct LrConfig {
  std::string schedule = "cosine";  // linear, constant, one_cycle
  double peak = 0;                  // 0: the rule's, from the job's RuleTable
  Index warm_up_steps = 50;
  double final_ratio = 0.1;
  double rise = 0.3;
  bool cycle_momentum = false;
};

// Values with which a rule trains a job's default model well.
struct RuleDefaults {
  std::string_view name = {};
  double peak = 0, weight_decay = 0, beta2 = 0.999;
};
using RuleTable = std::span<const RuleDefaults>;

// Throws Error{InvalidArgument} that lists the known names if the name is unknown.
const RuleDefaults& find_rule(RuleTable rules, std::string_view name);
// Replaces every value at "auto".
OptimConfig fill_defaults(OptimConfig optim, RuleTable rules);
// Returns lr.peak, or the rule's peak if that is 0.
double peak_of(const OptimConfig& optim, const LrConfig& lr, RuleTable rules);

void add_entries(ConfigEntries& entries, OptimConfig& optim, RuleTable rules);
// peak_note describes how else the job changes the default of lr.peak.
void add_entries(ConfigEntries& entries, LrConfig& lr, RuleTable rules,
                 std::string_view peak_note = {});
// Throws Error{InvalidArgument} that names the key if a value is out of range.
void check_config(const OptimConfig& optim, RuleTable rules);
void check_config(const LrConfig& lr);

}  // namespace hone::optim
