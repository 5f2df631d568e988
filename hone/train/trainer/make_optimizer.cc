// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/make_optimizer.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "hone/train/surgery/slot.h"

namespace hone::trainer {
namespace {

using optim::StateDtype;
using Optimizer = std::shared_ptr<optim::MultiTensorOptimizer>;

struct Parameters {
  std::vector<torch::Tensor> matrices, vectors, embeddings, scaled_matrices, scaled_vectors;
};

Parameters sort_parameters(const torch::nn::Module& module,
                           std::span<const std::string_view> embeddings, const ScaledRate& scaled) {
  Parameters out;
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

StateDtype parse_state_dtype(std::string_view name) {
  if (name == "bf16") return StateDtype::BFloat16;
  return name == "8bit" ? StateDtype::Block8 : StateDtype::Float32;
}

optim::CorrelationMethod parse_method(std::string_view name) {
  using enum optim::CorrelationMethod;
  if (name == "auto") return Auto;
  if (name == "cosine_similarity") return CosineSimilarity;
  return name == "vectorized" ? Vectorized : Manual;
}

template <class Rule, class Options>
Optimizer make_grouped(const optim::OptimConfig& chosen, Parameters parameters, Options options,
                       double factor) {
  options.state_dtype(parse_state_dtype(chosen.state_dtype)).weight_decay(*chosen.weight_decay);
  Options without_decay = options, wide = options;
  without_decay.weight_decay(0);
  wide.state_dtype(StateDtype::Float32);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(parameters.matrices), std::make_unique<Options>(options));
  groups.emplace_back(std::move(parameters.vectors), std::make_unique<Options>(without_decay));
  if (!parameters.embeddings.empty()) {
    groups.emplace_back(std::move(parameters.embeddings), std::make_unique<Options>(wide));
  }
  const auto add_scaled = [&](std::vector<torch::Tensor>& tensors, const Options& at_peak) {
    if (tensors.empty()) return;
    auto own = std::make_unique<Options>(at_peak);
    own->set_lr(factor * own->get_lr());
    groups.emplace_back(std::move(tensors), std::move(own));
  };
  add_scaled(parameters.scaled_matrices, options);
  add_scaled(parameters.scaled_vectors, without_decay);
  return std::make_shared<Rule>(groups, options);
}

template <class Options>
Options torque_options(const optim::OptimConfig& chosen, double peak) {
  Options options(peak);
  options.momentum(chosen.momentum).decay_rate(chosen.decay_rate).eps(chosen.eps);
  options.correlation_method(parse_method(chosen.correlation_method));
  options.large_tensor_threshold(chosen.large_tensor_threshold).use_inplace_ops(!chosen.checked);
  if (chosen.fixed_damping > 0) options.fixed_damping(chosen.fixed_damping);
  if constexpr (requires { options.beta2(0.5); }) options.beta2(*chosen.beta2);
  return options;
}

template <class Options>
Options adam_options(const optim::OptimConfig& chosen, double peak) {
  return Options(peak).betas({chosen.beta1, *chosen.beta2}).eps(chosen.eps);
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
  const bool narrow = parse_state_dtype(chosen.state_dtype) == StateDtype::Block8;
  Parameters parameters =
      sort_parameters(module, narrow ? embeddings : std::span<const std::string_view>(), scaled);
  const auto make = [&]<class Rule>(std::type_identity<Rule>, const auto& options) {
    return make_grouped<Rule>(chosen, std::move(parameters), options, scaled.factor);
  };
  using std::type_identity;
  const std::string& name = chosen.name;
  if (name == "sgd") {
    return make(type_identity<optim::SGD>(),
                optim::SGDOptions(peak).momentum(chosen.momentum).nesterov(chosen.nesterov));
  }
  if (name == "adam") {
    return make(type_identity<optim::Adam>(), adam_options<optim::AdamOptions>(chosen, peak));
  }
  if (name == "adamw") {
    return make(type_identity<optim::AdamW>(), adam_options<optim::AdamWOptions>(chosen, peak));
  }
  if (name == "adagrad") {
    return make(type_identity<optim::Adagrad>(), optim::AdagradOptions(peak).eps(chosen.eps));
  }
  if (name == "lion") {
    return make(type_identity<optim::Lion>(),
                optim::LionOptions(peak).betas({chosen.beta1, *chosen.beta2}));
  }
  if (name == "tam") {
    return make(type_identity<optim::TAM>(), torque_options<optim::TAMOptions>(chosen, peak));
  }
  if (name == "adatam") {
    return make(type_identity<optim::AdaTAM>(), torque_options<optim::AdaTAMOptions>(chosen, peak));
  }
  HONE_CHECK(name == "adatamw", "optim.name", "a rule of docs/config.md", name);
  return make(type_identity<optim::AdaTAMW>(), torque_options<optim::AdaTAMWOptions>(chosen, peak));
}

}  // namespace hone::trainer
