// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/decay_lr.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "hone/train/optim/lr/scheduler_checks.h"

namespace hone::optim {
namespace {

double interpolate_cosine(double low, double high, Index step, Index steps) {
  const double turn = static_cast<double>(step) / static_cast<double>(steps);
  return low + (high - low) * (1 + std::cos(std::numbers::pi * turn)) / 2;
}

}  // namespace

CosineLR::CosineLR(torch::optim::Optimizer& optimizer, Index steps, double eta_min, double share)
    : Scheduler(optimizer, "CosineLR"),
      steps_(check_count(kind(), "steps", steps, 1)),
      eta_min_(check_number(kind(), "eta_min", eta_min)),
      share_(check_number(kind(), "share", share)) {
  step();
}

double CosineLR::rate_at(Index step, std::size_t, double base) const {
  return interpolate_cosine(eta_min_ + share_ * base, base, step, steps_);
}

CosineWarmRestartsLR::CosineWarmRestartsLR(torch::optim::Optimizer& optimizer, Index period,
                                           Index factor, double eta_min)
    : Scheduler(optimizer, "CosineWarmRestartsLR"),
      period_(check_count(kind(), "period", period, 1)),
      factor_(check_count(kind(), "factor", factor, 1)),
      eta_min_(check_number(kind(), "eta_min", eta_min)) {
  step();
}

double CosineWarmRestartsLR::rate_at(Index step, std::size_t, double base) const {
  if (factor_ == 1) return interpolate_cosine(eta_min_, base, step % period_, period_);
  Index period = period_;
  while (step >= period) {
    step -= period;
    period = std::min(period, std::numeric_limits<Index>::max() / factor_) * factor_;
  }
  return interpolate_cosine(eta_min_, base, step, period);
}

PolynomialLR::PolynomialLR(torch::optim::Optimizer& optimizer, Index steps, double power,
                           double eta_min, double share)
    : Scheduler(optimizer, "PolynomialLR"),
      steps_(check_count(kind(), "steps", steps, 1)),
      power_(check_number(kind(), "power", power)),
      eta_min_(check_number(kind(), "eta_min", eta_min)),
      share_(check_number(kind(), "share", share)) {
  step();
}

double PolynomialLR::rate_at(Index step, std::size_t, double base) const {
  const double left = 1 - static_cast<double>(std::min(step, steps_)) / static_cast<double>(steps_);
  const double least = eta_min_ + share_ * base;
  return least + (base - least) * std::pow(left, power_);
}

ExponentialLR::ExponentialLR(torch::optim::Optimizer& optimizer, double gamma)
    : Scheduler(optimizer, "ExponentialLR"), gamma_(check_number(kind(), "gamma", gamma)) {
  step();
}

double ExponentialLR::rate_at(Index step, std::size_t, double base) const {
  return base * std::pow(gamma_, static_cast<double>(step));
}

MultiStepLR::MultiStepLR(torch::optim::Optimizer& optimizer, std::vector<Index> milestones,
                         double gamma)
    : Scheduler(optimizer, "MultiStepLR"),
      milestones_(std::move(milestones)),
      gamma_(check_number(kind(), "gamma", gamma)) {
  check_milestones(kind(), milestones_);
  step();
}

double MultiStepLR::rate_at(Index step, std::size_t, double base) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step);
  return base * std::pow(gamma_, static_cast<double>(passed - milestones_.begin()));
}

}  // namespace hone::optim
