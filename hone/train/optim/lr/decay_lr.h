// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hone/train/optim/lr/scheduler.h"

namespace hone::optim {

// Schedulers with a closed formula of the step t; η₀ is the base rate.

// η_min + (η₀ - η_min)(1 + cos(πt/T))/2. Beyond T it rises again, like Python's CosineAnnealingLR.
// η_min is eta_min + share·η₀. A share keeps the ratios between the rates of groups.
class CosineLR final : public Scheduler {
 public:
  CosineLR(torch::optim::Optimizer& optimizer, Index steps, double eta_min = 0, double share = 0);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  Index steps_;
  double eta_min_, share_;
};

// A half cosine as above over `period` steps. Then it restarts from η₀ with a period `factor` times
// as long, and so on (arXiv 1608.03983).
class CosineWarmRestartsLR final : public Scheduler {
 public:
  CosineWarmRestartsLR(torch::optim::Optimizer& optimizer, Index period, Index factor = 1,
                       double eta_min = 0);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  Index period_, factor_;
  double eta_min_;
};

// η_min + (η₀ - η_min)(1 - min(t, T)/T)^power, with the η_min of CosineLR. Equals PolynomialLR of
// Python if η_min = 0.
class PolynomialLR final : public Scheduler {
 public:
  PolynomialLR(torch::optim::Optimizer& optimizer, Index steps, double power = 1,
               double eta_min = 0, double share = 0);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  Index steps_;
  double power_, eta_min_, share_;
};

// η₀ γ^t
class ExponentialLR final : public Scheduler {
 public:
  ExponentialLR(torch::optim::Optimizer& optimizer, double gamma);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  double gamma_;
};

// η₀ γ^k, where k is the number of milestones at or before t.
class MultiStepLR final : public Scheduler {
 public:
  MultiStepLR(torch::optim::Optimizer& optimizer, std::vector<Index> milestones,
              double gamma = 0.1);
  double rate_at(Index step, std::size_t group, double base) const override;

 private:
  std::vector<Index> milestones_;
  double gamma_;
};

}  // namespace hone::optim
