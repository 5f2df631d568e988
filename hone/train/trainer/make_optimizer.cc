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

namespace hone::trainer {
namespace {

using optim::StateDtype;
using Optimizer = std::shared_ptr<optim::MultiTensorOptimizer>;

struct Parameters {
  std::vector<torch::Tensor> matrices, vectors, embeddings;
};

Parameters sort_parameters(const torch::nn::Module& module,
                           std::span<const std::string_view> embeddings) {
  Parameters out;
  for (const auto& item : module.named_parameters()) {
    const bool is_embedding =
        std::find(embeddings.begin(), embeddings.end(), item.key()) != embeddings.end();
    (is_embedding              ? out.embeddings
     : item.value().dim() >= 2 ? out.matrices
                               : out.vectors)
        .push_back(item.value());
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

// The optimizer's own options are fresh ones: LibTorch gives a group the optimizer's value of each
// field that is still fresh, so that each group keeps what is set here.
template <class Rule, class Options>
Optimizer make_grouped(const optim::OptimConfig& chosen, Parameters parameters, Options options) {
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
  return std::make_shared<Rule>(groups, Options(options.lr()));
}

template <class Options>
Options torque_options(const optim::OptimConfig& chosen, double peak) {
  Options options(peak);
  options.momentum(chosen.momentum).decay_rate(chosen.decay_rate).eps(chosen.eps);
  options.correlation_method(parse_method(chosen.correlation_method));
  if (chosen.fixed_damping > 0) options.fixed_damping(chosen.fixed_damping);
  if constexpr (requires { options.beta2(0.5); }) options.beta2(*chosen.beta2);
  return options;
}

template <class Options>
Options adam_options(const optim::OptimConfig& chosen, double peak) {
  return Options(peak).betas({chosen.beta1, *chosen.beta2}).eps(chosen.eps);
}

}  // namespace

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(
    const optim::OptimConfig& chosen, double peak, const torch::nn::Module& module,
    std::span<const std::string_view> embeddings) {
  const bool narrow = parse_state_dtype(chosen.state_dtype) == StateDtype::Block8;
  Parameters parameters =
      sort_parameters(module, narrow ? embeddings : std::span<const std::string_view>());
  const auto make = [&]<class Rule>(std::type_identity<Rule>, const auto& options) {
    return make_grouped<Rule>(chosen, std::move(parameters), options);
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
