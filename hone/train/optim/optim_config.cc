// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/optim_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/train/optim/rule_table.h"

namespace hone::optim {
namespace {

constexpr double kLargestDecay = 0.999999;

std::vector<std::string_view> names_of(RuleTable rules) {
  std::vector<std::string_view> out;
  for (const RuleDefaults& rule : rules) out.push_back(rule.name);
  return out;
}

std::vector<std::string_view> decoupled_names() {
  std::vector<std::string_view> out;
  for (const RuleEntry& rule : rule_entries()) {
    if (rule.decoupled_decay) out.push_back(rule.name);
  }
  return out;
}

// "sgd 0.1, adam 0.004": the rules that read `key`, or all.
std::string list_defaults(RuleTable rules, double RuleDefaults::*field, std::string_view key = {}) {
  std::string out;
  for (const RuleDefaults& rule : rules) {
    if (!key.empty() && !find_entry(rule.name).reads(key)) continue;
    out += concat(out.empty() ? "" : ", ", rule.name, ' ', rule.*field);
  }
  return out;
}

}  // namespace

const RuleDefaults& find_rule(RuleTable rules, std::string_view name) {
  for (const RuleDefaults& rule : rules) {
    if (rule.name == name) return rule;
  }
  fail_argument("optim.name", join_choices(names_of(rules)), name);
}

OptimConfig fill_defaults(OptimConfig optim, RuleTable rules) {
  const RuleDefaults& rule = find_rule(rules, optim.name);
  if (!optim.weight_decay) optim.weight_decay = rule.weight_decay;
  if (!optim.beta2) optim.beta2 = rule.beta2;
  return optim;
}

double peak_of(const OptimConfig& optim, const LrConfig& lr, RuleTable rules) {
  return lr.peak > 0 ? lr.peak : find_rule(rules, optim.name).peak;
}

void add_entries(ConfigEntries& entries, OptimConfig& optim, RuleTable rules) {
  const auto add = [&](std::string_view name, ConfigField field, std::string meaning) {
    entries.push_back({name, field, std::move(meaning)});
  };
  // A key that only some rules read, which its meaning lists.
  const auto add_read = [&](std::string_view name, ConfigField field, std::string_view meaning) {
    add(name, field, concat(meaning, " (", readers_of(name), ")"));
    const auto all = rule_entries();
    const bool has_effect = std::ranges::any_of(
        all, [&](const RuleEntry& rule) { return rule.name == optim.name && rule.reads(name); });
    if (!has_effect) entries.back().ignored_by = concat("optim.name = ", optim.name);
  };
  add("optim.name", &optim.name, join_choices(names_of(rules)));
  add("optim.weight_decay", &optim.weight_decay,
      concat("weight decay of matrices; norm gains and biases have none. Decoupled for ",
             join_names(decoupled_names()),
             "; L2 for the others. auto: ", list_defaults(rules, &RuleDefaults::weight_decay)));
  add_read("optim.beta1", &optim.beta1, "decay of the first moment");
  add_read("optim.beta2", &optim.beta2,
           concat("decay of the second moment, or of the only moment. auto: ",
                  list_defaults(rules, &RuleDefaults::beta2, "optim.beta2")));
  add_read("optim.eps", &optim.eps,
           "epsilon added to the square root of the second moment or of a sum of squares, and to "
           "TAM's damping");
  add_read("optim.momentum", &optim.momentum, "momentum");
  add_read("optim.nesterov", &optim.nesterov, "use Nesterov momentum; needs a momentum above 0");
  add_read("optim.decay_rate", &optim.decay_rate, "decay of TAM's smoothed correlation");
  add_read("optim.correlation_method", &optim.correlation_method,
           "how TAM computes the cosine of momentum and gradient: manual or cosine_similarity: one "
           "per tensor; vectorized: one per row; auto: by shape (docs/optimizers.md)");
  add_read("optim.fixed_damping", &optim.fixed_damping,
           "fixed value of TAM's damping, which otherwise follows the correlation; 0: off");
  add_read("optim.large_tensor_threshold", &optim.large_tensor_threshold,
           "number of elements above which correlation_method auto no longer uses manual");
  const bool is_auto = optim.correlation_method == "auto" || optim.preset != kNoPreset;
  if (entries.back().ignored_by.empty() && !is_auto) {
    entries.back().ignored_by = concat("optim.correlation_method = ", optim.correlation_method);
  }
  add_read("optim.checked", &optim.checked,
           "a step changes nothing unless every new value is finite");
  add("optim.preset", &optim.preset,
      concat("none, or values for the keys that are not set: high_performance: correlation_method "
             "auto; stable: checked; large_model: correlation_method vectorized; memory_limited: "
             "checked, state_dtype bf16; for_model_size: by the number of parameters "
             "(docs/optimizers.md) (",
             readers_of("optim.preset"), ")"));
  entries.back().fixed_in_run = false;  // what it stands for is recorded and fixed
  add("optim.state_dtype", &optim.state_dtype,
      "type in which moments are stored: fp32, bf16 or 8bit; with 8bit, small tensors and the "
      "embedding matrix stay in fp32");
}

void add_entries(ConfigEntries& entries, LrConfig& lr, RuleTable rules,
                 std::string_view peak_note) {
  const auto add = [&](std::string_view name, ConfigField field, std::string meaning,
                       std::initializer_list<std::string_view> schedules = {}) {
    entries.push_back({name, field, std::move(meaning)});
    if (schedules.size() != 0 && std::ranges::find(schedules, lr.schedule) == schedules.end()) {
      entries.back().ignored_by = concat("lr.schedule = ", lr.schedule);
    }
  };
  add("lr.schedule", &lr.schedule,
      "cosine or linear: falls from peak to final_ratio of it after the warm-up; constant: stays "
      "at peak after the warm-up; one_cycle: rises from peak/25 to peak, then falls to final_ratio "
      "of it");
  add("lr.peak", &lr.peak,
      concat("highest learning rate; 0: ", list_defaults(rules, &RuleDefaults::peak), peak_note));
  add("lr.warm_up_steps", &lr.warm_up_steps,
      "steps of linear warm-up for cosine, linear and constant", {"cosine", "linear", "constant"});
  add("lr.final_ratio", &lr.final_ratio,
      "final learning rate of cosine, linear and one_cycle, as a fraction of peak",
      {"cosine", "linear", "one_cycle"});
  add("lr.rise", &lr.rise, "fraction of the steps in which one_cycle rises", {"one_cycle"});
  add("lr.cycle_momentum", &lr.cycle_momentum,
      concat("one_cycle moves momentum (beta1 for ", readers_of("optim.beta1"),
             ") from 0.95 to 0.85 and back instead of keeping the value of [optim]"),
      {"one_cycle"});
}

void check_config(const OptimConfig& optim, RuleTable rules) {
  find_rule(rules, optim.name);
  if (optim.weight_decay) check_range("optim.weight_decay", *optim.weight_decay, 0, 10);
  check_range("optim.beta1", optim.beta1, 0, kLargestDecay);
  if (optim.beta2) check_range("optim.beta2", *optim.beta2, 0, kLargestDecay);
  check_range("optim.eps", optim.eps, 1e-30, 1);
  check_range("optim.momentum", optim.momentum, 0, kLargestDecay);
  HONE_CHECK(
      !optim.nesterov || !find_entry(optim.name).reads("optim.nesterov") || optim.momentum > 0,
      "optim.nesterov", "a momentum above 0", optim.momentum);
  check_range("optim.decay_rate", optim.decay_rate, 0, kLargestDecay);
  check_choice(
      "optim.correlation_method", optim.correlation_method,
      std::array<std::string_view, 4>{"manual", "auto", "cosine_similarity", "vectorized"});
  check_range("optim.fixed_damping", optim.fixed_damping, 0, 1);
  check_range("optim.large_tensor_threshold", optim.large_tensor_threshold, 0, Index{1} << 40);
  check_choice("optim.preset", optim.preset,
               std::array<std::string_view, 6>{kNoPreset, "high_performance", "stable",
                                               "large_model", "memory_limited", "for_model_size"});
  if (optim.preset != kNoPreset && !find_entry(optim.name).reads("optim.preset")) {
    fail_argument(
        "optim.preset",
        concat(optim.preset, " is a preset of TAM; optim.name = ", optim.name, " has none."));
  }
  check_choice("optim.state_dtype", optim.state_dtype,
               std::array<std::string_view, 3>{"fp32", "bf16", "8bit"});
}

void check_config(const LrConfig& lr) {
  check_choice("lr.schedule", lr.schedule,
               std::array<std::string_view, 4>{"cosine", "linear", "constant", "one_cycle"});
  check_range("lr.peak", lr.peak, 0, 1000);
  check_range("lr.warm_up_steps", lr.warm_up_steps, 0, Index{1} << 40);
  check_range("lr.final_ratio", lr.final_ratio, 0, 1);
  check_range("lr.rise", lr.rise, 0.001, 0.999);
}

}  // namespace hone::optim
