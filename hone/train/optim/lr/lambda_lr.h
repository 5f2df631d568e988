// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "hone/train/optim/lr/scheduler.h"

namespace hone::optim {

// A pure function of the step.
using RateFunction = std::function<double(Index step)>;

// η₀ λ(t), with one function for all groups or one for each.
class LambdaLR final : public Scheduler {
 public:
  LambdaLR(torch::optim::Optimizer& optimizer, RateFunction function)
      : LambdaLR(optimizer, std::vector{std::move(function)}) {}
  LambdaLR(torch::optim::Optimizer& optimizer, std::vector<RateFunction> functions);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  std::vector<RateFunction> functions_;
};

// η₀ λ(1) λ(2) … λ(t), with one function for all groups or one for each. A step calls λ once;
// going to another step than the next one calls it for every step from 1.
class MultiplicativeLR final : public Scheduler {
 public:
  MultiplicativeLR(torch::optim::Optimizer& optimizer, RateFunction function)
      : MultiplicativeLR(optimizer, std::vector{std::move(function)}) {}
  MultiplicativeLR(torch::optim::Optimizer& optimizer, std::vector<RateFunction> functions);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  struct Product {
    Index step = 0;
    double value = 1;
  };
  std::vector<RateFunction> functions_;
  mutable std::vector<Product> products_;  // the last one computed, per group
};

}  // namespace hone::optim
