// SPDX-License-Identifier: Apache-2.0
#include "tests/train/optim/lr/cases_support.h"

#include <torch/optim/sgd.h>

#include <limits>

#include "hone/train/optim/lr/composed_lr.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/lr/lambda_lr.h"
#include "hone/train/optim/sgd.h"

namespace hone::optim::test {
namespace {

using torch::optim::Optimizer;

double inverse(Index t) { return 1 / (1 + 0.01 * static_cast<double>(t)); }
double wave(Index t) { return t % 3 == 0 ? 1.01 : 0.99; }

template <class Type, class... Arguments>
MakeScheduler make(Arguments... arguments) {
  return [=](Optimizer& optimizer) { return std::make_unique<Type>(optimizer, arguments...); };
}

MakeScheduler make_warmup(Index steps, double start, WarmupShape shape) {
  return make<WarmupLR>(WarmupLROptions{steps, start, shape});
}

// Type(optimizer, {members…}, arguments…)
template <class Type, class... Arguments>
MakeScheduler compose(std::vector<MakeScheduler> makers, Arguments... arguments) {
  return [=](Optimizer& optimizer) {
    std::vector<SchedulerPtr> members;
    for (const MakeScheduler& maker : makers) members.push_back(maker(optimizer));
    return std::make_unique<Type>(optimizer, members, arguments...);
  };
}

}  // namespace

std::unique_ptr<Optimizer> make_stock_sgd() {
  return make_two_groups<torch::optim::SGD>(torch::optim::SGDOptions(1).momentum(0.9));
}
std::unique_ptr<Optimizer> make_hone_sgd() {
  return make_two_groups<SGD>(SGDOptions(1).momentum(0.9));
}

const std::map<std::string, MakeScheduler>& scheduler_cases() {
  constexpr auto kLinear = WarmupShape::Linear, kConstant = WarmupShape::Constant;
  using Milestones = std::vector<Index>;
  static const std::map<std::string, MakeScheduler> cases = {
      {"cosine_1000", make<CosineLR>(1000)},
      {"cosine_100_floor", make<CosineLR>(100, 1e-3)},
      {"cosine_7", make<CosineLR>(7)},
      {"restarts_50", make<CosineWarmRestartsLR>(50)},
      {"restarts_10_2_floor", make<CosineWarmRestartsLR>(10, 2, 1e-3)},
      {"restarts_7_3", make<CosineWarmRestartsLR>(7, 3)},
      {"linear_warmup_500", make_warmup(500, 0.1, kLinear)},
      {"linear_warmup_5", make_warmup(5, 1.0 / 3, kLinear)},
      {"constant_warmup_30", make_warmup(30, 0.25, kConstant)},
      {"polynomial_900_2", make<PolynomialLR>(900, 2.0)},
      {"polynomial_1000", make<PolynomialLR>(1000)},
      {"polynomial_200_half", make<PolynomialLR>(200, 0.5)},
      {"exponential_99", make<ExponentialLR>(0.99)},
      {"exponential_1", make<ExponentialLR>(1.0)},
      {"multi_step", make<MultiStepLR>(Milestones{1, 200, 201, 900}, 0.3)},
      {"lambda_one", make<LambdaLR>(inverse)},
      {"lambda_two", make<LambdaLR>(std::vector<RateFunction>{inverse, wave})},
      {"multiplicative_one", make<MultiplicativeLR>(wave)},
      {"multiplicative_two", make<MultiplicativeLR>(std::vector<RateFunction>{inverse, wave})},
      {"sequential_warmup_cosine",
       compose<SequentialLR>({make_warmup(100, 0.25, kLinear), make<CosineLR>(900, 1e-3)},
                             Milestones{100})},
      {"sequential_three",
       compose<SequentialLR>({make_warmup(40, 0.1, kConstant), make<ExponentialLR>(0.995),
                              make<PolynomialLR>(300, 2.0)},
                             Milestones{50, 640})},
      {"chained_three",
       compose<ChainedLR>({make_warmup(200, 0.05, kLinear), make<ExponentialLR>(0.999),
                           make<MultiStepLR>(Milestones{250, 500}, 0.5)})},
      {"chained_cosine", compose<ChainedLR>({make<CosineLR>(1000), make_warmup(10, 0.5, kConstant),
                                             make<MultiplicativeLR>(wave)})},
  };
  return cases;
}

const std::map<std::string, OneCycleLROptions>& one_cycle_cases() {
  static const std::map<std::string, OneCycleLROptions> cases = {
      {"one_cycle_100", {.max_lr = {1}, .total_steps = 100}},
      {"one_cycle_1000", {.max_lr = {1, 0.2}, .total_steps = 1000, .pct_start = 0.25}},
      {"one_cycle_linear",
       {.max_lr = {1, 0.2},
        .total_steps = 999,
        .anneal = Anneal::Linear,
        .div_factor = 10,
        .final_div_factor = 100}},
      {"one_cycle_three_phase",
       {.max_lr = {1, 0.2},
        .total_steps = 1000,
        .pct_start = 0.4,
        .base_momentum = 0.8,
        .max_momentum = 0.9,
        .three_phase = true}},
      {"one_cycle_three_phase_linear",
       {.max_lr = {0.5}, .total_steps = 777, .anneal = Anneal::Linear, .three_phase = true}},
      {"one_cycle_short_rise", {.max_lr = {0.5}, .total_steps = 9, .pct_start = 0.1}},
      {"one_cycle_plain", {.max_lr = {0.5}, .total_steps = 300, .cycle_momentum = false}},
  };
  return cases;
}

const std::map<std::string, ReduceOnPlateauLROptions>& plateau_cases() {
  static const std::map<std::string, ReduceOnPlateauLROptions> cases = {
      {"plateau_default", {}},
      {"plateau_min_abs",
       {.factor = 0.5,
        .patience = 2,
        .threshold = 0.005,
        .threshold_mode = PlateauThreshold::Absolute,
        .cooldown = 3,
        .min_lr = {1e-3, 2e-3}}},
      {"plateau_max_rel",
       {.mode = PlateauMode::Max,
        .factor = 0.7,
        .patience = 4,
        .threshold = 0.01,
        .min_lr = {1e-4}}},
      {"plateau_max_abs",
       {.mode = PlateauMode::Max,
        .factor = 0.9,
        .patience = 0,
        .threshold = 0.1,
        .threshold_mode = PlateauThreshold::Absolute,
        .cooldown = 1,
        .eps = 1e-4}},
  };
  return cases;
}

double plateau_metric(Index t) {
  if (t % 17 == 5) return std::numeric_limits<double>::quiet_NaN();
  return t < 60 ? 1 / (1 + 0.05 * static_cast<double>(t))
                : 0.25 + 0.01 * static_cast<double>(t % 5);
}

}  // namespace hone::optim::test
