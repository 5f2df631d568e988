// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/make_optimizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/rule_table.h"
#include "hone/train/optim/tam.h"
#include "hone/train/surgery/slot.h"

namespace hone::trainer {
namespace {

optim::ParameterSets sort_parameters(const torch::nn::Module& module,
                                     std::span<const std::string_view> embeddings,
                                     const ScaledRate& scaled) {
  optim::ParameterSets out;
  out.scale = scaled.factor;
  const auto has_own_rate = [&](const torch::Tensor& parameter) {
    return scaled.factor != 1 &&
           std::ranges::any_of(scaled.parameters,
                               [&](const torch::Tensor& one) { return one.is_same(parameter); });
  };
  for (const auto& [name, value] : nn::parameters_by_path(module)) {
    const bool is_embedding =
        std::find(embeddings.begin(), embeddings.end(), name) != embeddings.end();
    const bool is_matrix = value.dim() >= 2;
    (has_own_rate(value) ? (is_matrix ? out.scaled_matrices : out.scaled_vectors)
     : is_embedding      ? out.embeddings
     : is_matrix         ? out.matrices
                         : out.vectors)
        .push_back(value);
  }
  return out;
}

// The rate is not read.
optim::TAMOptions preset_options(std::string_view name, const torch::nn::Module& module) {
  using optim::TAMOptions;
  if (name == "high_performance") return TAMOptions::high_performance(1);
  if (name == "stable") return TAMOptions::stable(1);
  if (name == "large_model") return TAMOptions::large_model(1);
  if (name == "memory_limited") return TAMOptions::memory_limited(1);
  HONE_CHECK(name == "for_model_size", "optim.preset", "a preset of docs/config.md", name);
  double parameters = 0;
  for (const torch::Tensor& parameter : module.parameters()) {
    parameters += static_cast<double>(parameter.numel());
  }
  return TAMOptions::for_model_size(1, parameters);
}

// As the configuration writes an enumerator.
template <class Enum>
std::string name_in_config(Enum value) {
  return std::string(names_of(value)[static_cast<std::size_t>(value)]);
}

}  // namespace

optim::OptimConfig apply_preset(optim::OptimConfig optim, const ConfigKeys& given,
                                const torch::nn::Module& module) {
  if (optim.preset == optim::kNoPreset) return optim;
  const optim::TAMOptions preset = preset_options(optim.preset, module);
  const auto set = [&](std::string_view key, auto& field, const auto& value) {
    if (!given.contains(key)) field = value;
  };
  if (preset.correlation_method()) {
    set("optim.correlation_method", optim.correlation_method,
        name_in_config(*preset.correlation_method()));
  }
  set("optim.large_tensor_threshold", optim.large_tensor_threshold,
      preset.large_tensor_threshold());
  set("optim.checked", optim.checked, !preset.use_inplace_ops());
  set("optim.state_dtype", optim.state_dtype, name_in_config(preset.state_dtype()));
  return optim;
}

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(
    const optim::OptimConfig& chosen, double peak, const torch::nn::Module& module,
    std::span<const std::string_view> embeddings, const ScaledRate& scaled) {
  const optim::RuleEntry& rule = optim::find_entry(chosen.name);
  const bool apart = rule.separates_embeddings || chosen.state_dtype == "8bit";
  return rule.make(
      chosen, peak,
      sort_parameters(module, apart ? embeddings : std::span<const std::string_view>(), scaled));
}

}  // namespace hone::trainer
