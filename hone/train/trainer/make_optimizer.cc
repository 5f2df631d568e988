// SPDX-License-Identifier: Apache-2.0
#include "hone/train/trainer/make_optimizer.h"

#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"

namespace hone::trainer {
namespace {

// A group whose options equal a fresh object's would inherit the optimiser's (LibTorch's rule), so
// both groups get theirs and the optimiser those of the first.
template <class Optimizer, class Options>
std::shared_ptr<optim::MultiTensorOptimizer> make_grouped(const torch::nn::Module& module,
                                                          const Options& options) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const torch::Tensor& parameter : module.parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  Options without_decay = options;
  without_decay.weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(matrices), std::make_unique<Options>(options));
  groups.emplace_back(std::move(vectors), std::make_unique<Options>(without_decay));
  return std::make_shared<Optimizer>(groups, without_decay);
}

}  // namespace

std::shared_ptr<optim::MultiTensorOptimizer> make_optimizer(const LmConfig& config,
                                                            const torch::nn::Module& module) {
  const LmConfig::Optim& chosen = config.optim;
  const double lr = peak_of(config);
  if (chosen.name == "adamw") {
    return make_grouped<optim::AdamW>(module, optim::AdamWOptions(lr)
                                                  .betas({chosen.beta1, chosen.beta2})
                                                  .eps(chosen.eps)
                                                  .weight_decay(chosen.weight_decay));
  }
  if (chosen.name == "adatamw") {
    return make_grouped<optim::AdaTAMW>(module, optim::AdaTAMWOptions(lr)
                                                    .momentum(chosen.momentum)
                                                    .decay_rate(chosen.decay_rate)
                                                    .beta2(chosen.beta2)
                                                    .eps(chosen.eps)
                                                    .weight_decay(chosen.weight_decay));
  }
  if (chosen.name == "tam") {
    return make_grouped<optim::TAM>(module, optim::TAMOptions(lr)
                                                .momentum(chosen.momentum)
                                                .decay_rate(chosen.decay_rate)
                                                .eps(chosen.eps)
                                                .weight_decay(chosen.weight_decay));
  }
  HONE_CHECK(chosen.name == "sgd", "optim.name", "adamw, tam, adatamw or sgd", chosen.name);
  return make_grouped<optim::SGD>(
      module, optim::SGDOptions(lr).momentum(chosen.momentum).weight_decay(chosen.weight_decay));
}

}  // namespace hone::trainer
