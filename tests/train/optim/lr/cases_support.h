// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/train/optim/lr/one_cycle_lr.h"
#include "hone/train/optim/lr/reduce_on_plateau_lr.h"
#include "hone/train/optim/lr/scheduler.h"

namespace hone::optim::test {

constexpr Index kSteps = 1000;
constexpr double kRates[] = {0.4, 0.03};

// Two groups of one parameter each with the rates above.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make_two_groups(Options options) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : kRates) {
    options.set_lr(rate);
    groups.emplace_back(std::vector<torch::Tensor>{torch::zeros({1})},
                        std::make_unique<Options>(options));
  }
  options.set_lr(1);
  return std::make_unique<Optimizer>(groups, options);
}

// LibTorch's SGD with momentum 0.9.
std::unique_ptr<torch::optim::Optimizer> make_stock_sgd();
std::unique_ptr<torch::optim::Optimizer> make_hone_sgd();

using MakeScheduler = std::function<std::unique_ptr<Scheduler>(torch::optim::Optimizer&)>;

// The cases of peer_schedulers.py, by name.
const std::map<std::string, MakeScheduler>& scheduler_cases();
const std::map<std::string, OneCycleLROptions>& one_cycle_cases();
const std::map<std::string, ReduceOnPlateauLROptions>& plateau_cases();
// The metric of step t of plateau_cases().
double plateau_metric(Index t);

}  // namespace hone::optim::test
