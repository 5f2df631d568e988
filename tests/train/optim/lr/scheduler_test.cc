// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/lr/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/philox.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lr/composed_lr.h"
#include "hone/train/optim/lr/decay_lr.h"
#include "hone/train/optim/lr/group_momentum.h"
#include "hone/train/optim/lr/lambda_lr.h"
#include "hone/train/optim/muon.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"
#include "tests/train/optim/lr/cases_support.h"

namespace hone::optim {
namespace {

using hone::test::refusal;
using test::kRates;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::optim::Optimizer;
using Milestones = std::vector<Index>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Rates of the first group at steps 0 to n-1.
std::vector<double> rates_of(Scheduler& scheduler, int n) {
  std::vector<double> rates;
  for (int t = 0; t < n; ++t) {
    if (t > 0) scheduler.step();
    rates.push_back(scheduler.last_rates()[0]);
  }
  return rates;
}

TEST(OneCycleLR, has_its_known_values) {
  const auto optimizer = test::make_stock_sgd();
  OneCycleLR scheduler(*optimizer, {.max_lr = {1}, .total_steps = 100});
  const auto momentum = [&] { return *get_momentum(optimizer->param_groups()[0].options()); };
  EXPECT_DOUBLE_EQ(momentum(), 0.95);
  const std::vector<double> rates = rates_of(scheduler, 30);
  EXPECT_NEAR(rates[0], 0.04, 1e-16);
  EXPECT_DOUBLE_EQ(rates[29], 1.0);
  EXPECT_DOUBLE_EQ(momentum(), 0.85);
  while (scheduler.last_step() < 99) scheduler.step();
  EXPECT_NEAR(scheduler.last_rates()[0], 4e-6, 1e-18);
  EXPECT_DOUBLE_EQ(momentum(), 0.95);
}

TEST(OneCycleLR, refuses_the_step_after_its_last_and_leaves_the_rates) {
  const auto optimizer = test::make_stock_sgd();
  OneCycleLR scheduler(*optimizer, {.max_lr = {1}, .total_steps = 4});
  rates_of(scheduler, 5);
  const std::vector<double> last = scheduler.last_rates();
  EXPECT_THAT(refusal([&] { scheduler.step(); }), HasSubstr("total_steps = 4"));
  EXPECT_EQ(scheduler.last_step(), 4);
  EXPECT_EQ(scheduler.last_rates(), last);
}

TEST(OneCycleLR, goes_down_to_zero_by_an_infinite_divisor_and_skips_an_empty_phase) {
  const auto optimizer = test::make_stock_sgd();
  OneCycleLR scheduler(
      *optimizer,
      {.max_lr = {1}, .total_steps = 4, .pct_start = 0.25, .final_div_factor = kInfinity});
  EXPECT_THAT(rates_of(scheduler, 4), ElementsAre(1, testing::DoubleNear(0.75, 1e-15),
                                                  testing::DoubleNear(0.25, 1e-15), 0));
}

TEST(OneCycleLR, moves_the_momentum_of_muon) {
  Muon optimizer({torch::zeros({4, 4}).requires_grad_()}, MuonOptions(1));
  OneCycleLR scheduler(optimizer, {.max_lr = {1}, .total_steps = 10});
  const auto momentum = [&] { return *get_momentum(optimizer.param_groups()[0].options()); };
  EXPECT_DOUBLE_EQ(momentum(), 0.95);
  scheduler.step();
  scheduler.step();  // the end of the first phase
  EXPECT_DOUBLE_EQ(momentum(), 0.85);
}

TEST(OneCycleLR, leaves_momentum_alone_when_told_so) {
  torch::optim::Adagrad without({torch::zeros({1})}, torch::optim::AdagradOptions(0.1));
  EXPECT_THAT(refusal([&] { OneCycleLR(without, {.max_lr = {1}, .total_steps = 9}); }),
              HasSubstr("momentum"));
  OneCycleLR(without, {.max_lr = {1}, .total_steps = 9, .cycle_momentum = false});
  torch::optim::AdamW adamw({torch::zeros({1})},
                            torch::optim::AdamWOptions(0.1).betas({0.9, 0.95}));
  OneCycleLR(adamw, {.max_lr = {1}, .total_steps = 9});
  const auto& options = static_cast<torch::optim::AdamWOptions&>(adamw.param_groups()[0].options());
  EXPECT_EQ(options.betas(), std::tuple(0.95, 0.95)) << "the second beta stays";
}

TEST(WarmupLR, delegates_to_the_inner_scheduler_after_its_steps) {
  const auto optimizer = test::make_stock_sgd();
  const auto inner = std::make_shared<MultiStepLR>(*optimizer, Milestones{2}, 0.5);
  WarmupLR scheduler(*optimizer, {.steps = 4, .start = 0}, inner);
  EXPECT_THAT(rates_of(scheduler, 8),
              testing::Pointwise(testing::DoubleEq(), {0., 0.1, 0.2, 0.3, 0.4, 0.4, 0.2, 0.2}));
  WarmupLR none(*optimizer, {.steps = 0, .start = 0});
  EXPECT_THAT(rates_of(none, 2), ElementsAre(0.4, 0.4));
}

TEST(PolynomialLR, ends_at_the_given_minimum) {
  const auto optimizer = test::make_stock_sgd();
  PolynomialLR scheduler(*optimizer, 4, 1, 0.2);
  EXPECT_THAT(rates_of(scheduler, 6),
              testing::Pointwise(testing::DoubleEq(), {0.4, 0.35, 0.3, 0.25, 0.2, 0.2}));
}

TEST(DecayLR, takes_a_share_of_the_base_rate_of_each_group_for_its_minimum) {
  const auto optimizer = test::make_stock_sgd();
  const CosineLR cosine(*optimizer, 4, 0.01, 0.5);
  const PolynomialLR line(*optimizer, 4, 1, 0.01, 0.5);
  for (const std::size_t group : {std::size_t{0}, std::size_t{1}}) {
    const double base = kRates[group], least = 0.01 + base / 2;
    for (const Scheduler* scheduler :
         {static_cast<const Scheduler*>(&cosine), static_cast<const Scheduler*>(&line)}) {
      EXPECT_DOUBLE_EQ(scheduler->rate_at(0, group, base), base) << scheduler->kind();
      EXPECT_DOUBLE_EQ(scheduler->rate_at(2, group, base), (base + least) / 2);
      EXPECT_DOUBLE_EQ(scheduler->rate_at(4, group, base), least);
    }
  }
}

TEST(CosineWarmRestartsLR, lengthens_its_periods_however_long_they_get) {
  const auto optimizer = test::make_stock_sgd();
  const CosineWarmRestartsLR scheduler(*optimizer, 3, Index{1} << 40);
  EXPECT_EQ(scheduler.rate_at(3, 0, 1), 1);
  EXPECT_NEAR(scheduler.rate_at(Index{1} << 62, 0, 1), 0.5, 1e-6) << "half of the longest period";
}

TEST(ChainedLR, multiplies_its_members_and_takes_a_floor_from_the_last) {
  const auto optimizer = test::make_stock_sgd();
  const auto warmup = std::make_shared<WarmupLR>(*optimizer, WarmupLROptions{.steps = 2});
  const auto halves = std::make_shared<ExponentialLR>(*optimizer, 0.5);
  const auto cosine = std::make_shared<CosineLR>(*optimizer, 4, 0.01);
  ChainedLR scheduler(*optimizer, {warmup, halves});
  EXPECT_THAT(rates_of(scheduler, 4), ElementsAre(0, 0.1, 0.1, 0.05));
  EXPECT_DOUBLE_EQ(ChainedLR(*optimizer, {warmup, halves, cosine}).rate_at(4, 0, 0.4), 0.01);
  EXPECT_EQ(scheduler.kind(), "ChainedLR(WarmupLR, ExponentialLR)");
}

// Members set their own first rates when they are made.
TEST(Scheduler, members_start_from_the_rates_before_the_first_of_them_in_any_order) {
  const auto optimizer = test::make_stock_sgd();
  {
    const auto warmup = std::make_shared<WarmupLR>(*optimizer, WarmupLROptions{.steps = 5});
    EXPECT_EQ(warmup->last_rates()[0], 0);
    const auto cosine = std::make_shared<CosineLR>(*optimizer, 10);
    const SequentialLR scheduler(*optimizer, {warmup, cosine}, {5});
    EXPECT_THAT(cosine->base_rates(), ElementsAre(kRates[0], kRates[1]));
    EXPECT_THAT(scheduler.base_rates(), ElementsAre(kRates[0], kRates[1]));
    EXPECT_EQ(scheduler.rate_at(5, 1, kRates[1]), kRates[1]);
  }
  for (auto& group : optimizer->param_groups()) group.options().set_lr(7);
  EXPECT_THAT(ExponentialLR(*optimizer, 0.5).base_rates(), ElementsAre(7, 7))
      << "with no scheduler left, the rates are the user's";
}

TEST(Scheduler, refuses_groups_that_came_after_it) {
  const auto optimizer = test::make_stock_sgd();
  CosineLR scheduler(*optimizer, 10);
  optimizer->add_param_group(
      torch::optim::OptimizerParamGroup(std::vector<torch::Tensor>{torch::zeros({1})}));
  EXPECT_THAT(refusal([&] { scheduler.step(); }), HasSubstr("2 parameter groups"));
  EXPECT_EQ(CosineLR(*optimizer, 10).base_rates().size(), 3u);
}

void expect_refused(const std::string& want, const std::function<void(Optimizer&)>& make) {
  const auto optimizer = test::make_stock_sgd();
  EXPECT_THAT(refusal([&] { make(*optimizer); }), HasSubstr(want));
  EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), kRates[0]) << want;
}

TEST(Scheduler, refuses_nonsense_in_one_sentence_and_leaves_the_rates) {
  expect_refused("steps", [](Optimizer& o) { CosineLR(o, 0); });
  expect_refused("eta_min", [](Optimizer& o) { CosineLR(o, 5, -1); });
  expect_refused("eta_min", [](Optimizer& o) { CosineLR(o, 5, kNaN); });
  expect_refused("share", [](Optimizer& o) { CosineLR(o, 5, 0, -1); });
  expect_refused("share", [](Optimizer& o) { PolynomialLR(o, 5, 1, 0, kNaN); });
  expect_refused("period", [](Optimizer& o) { CosineWarmRestartsLR(o, -3); });
  expect_refused("factor", [](Optimizer& o) { CosineWarmRestartsLR(o, 3, 0); });
  expect_refused("steps", [](Optimizer& o) { PolynomialLR(o, -1); });
  expect_refused("power", [](Optimizer& o) { PolynomialLR(o, 5, -1); });
  expect_refused("gamma", [](Optimizer& o) { ExponentialLR(o, -0.1); });
  expect_refused("milestone above 5", [](Optimizer& o) { MultiStepLR(o, {5, 5}); });
  expect_refused("milestone above 0", [](Optimizer& o) { MultiStepLR(o, {-5, 5}); });
  expect_refused("one per group: 2", [](Optimizer& o) {
    LambdaLR(o, std::vector<RateFunction>(3, [](Index) { return 1.; }));
  });
  expect_refused("called", [](Optimizer& o) { MultiplicativeLR(o, RateFunction()); });
  expect_refused("finite rate at step 0",
                 [](Optimizer& o) { LambdaLR(o, [](Index) { return kNaN; }); });
  expect_refused("steps", [](Optimizer& o) { WarmupLR(o, {.steps = -1}); });
  expect_refused("start", [](Optimizer& o) { WarmupLR(o, {.steps = 1, .start = 1.5}); });
  expect_refused("pct_start", [](Optimizer& o) {
    OneCycleLR(o, {.max_lr = {1}, .total_steps = 10, .pct_start = 1});
  });
  expect_refused("pct_start", [](Optimizer& o) {
    OneCycleLR(o, {.max_lr = {1}, .total_steps = 10, .pct_start = 0.6, .three_phase = true});
  });
  expect_refused("total_steps", [](Optimizer& o) { OneCycleLR(o, {.max_lr = {1}}); });
  expect_refused("max_lr", [](Optimizer& o) { OneCycleLR(o, {.total_steps = 10}); });
  expect_refused("divisors", [](Optimizer& o) {
    OneCycleLR(o, {.max_lr = {1}, .total_steps = 10, .div_factor = 0});
  });
  expect_refused("momentum", [](Optimizer& o) {
    OneCycleLR(o, {.max_lr = {1}, .total_steps = 10, .max_momentum = 1});
  });
}

TEST(Compositions, refuse_strangers_and_wrong_milestones) {
  const auto other = test::make_stock_sgd();
  const auto stranger = std::make_shared<ExponentialLR>(*other, 1);
  expect_refused("own optimizer", [&](Optimizer& o) { ChainedLR(o, {stranger}); });
  expect_refused("own optimizer", [&](Optimizer& o) { SequentialLR(o, {stranger}, {}); });
  expect_refused("own optimizer", [&](Optimizer& o) { WarmupLR(o, {.steps = 1}, stranger); });
  expect_refused("null", [](Optimizer& o) { ChainedLR(o, {nullptr}); });
  expect_refused("one member", [](Optimizer& o) { SequentialLR(o, {}, {}); });
  const auto two = [](Optimizer& o) {
    return std::vector<SchedulerPtr>(2, std::make_shared<ExponentialLR>(o, 1));
  };
  expect_refused("1 milestones", [&](Optimizer& o) { SequentialLR(o, two(o), {}); });
  expect_refused("milestone above 0", [&](Optimizer& o) { SequentialLR(o, two(o), {0}); });
}

std::map<std::string, test::MakeScheduler> all_cases() {
  auto cases = test::scheduler_cases();
  for (const auto& [name, options] : test::one_cycle_cases()) {
    cases[name] = [options = options](Optimizer& optimizer) {
      return std::make_unique<OneCycleLR>(optimizer, options);
    };
  }
  // Momentum moves in the middle only.
  cases["one_cycle_between"] = [](Optimizer& o) {
    const auto cycle = [&] {
      return std::make_shared<OneCycleLR>(
          o, OneCycleLROptions{.max_lr = {1, 0.2}, .total_steps = 200});
    };
    const auto warmup =
        std::make_shared<WarmupLR>(o, WarmupLROptions{.steps = 50, .start = 0.1}, cycle());
    const auto tail = std::make_shared<ExponentialLR>(o, 0.99);
    return std::make_unique<SequentialLR>(o, std::vector<SchedulerPtr>{warmup, tail},
                                          Milestones{120});
  };
  return cases;
}

// Rates and momentum of both groups.
std::vector<double> settings_of(const Optimizer& optimizer) {
  std::vector<double> out;
  for (const auto& group : optimizer.param_groups()) {
    out.push_back(group.options().get_lr());
    out.push_back(*get_momentum(group.options()));
  }
  return out;
}

TEST(State, restored_at_random_steps_continues_bit_for_bit) {
  PhiloxStream random(3);
  for (const auto& [name, make] : all_cases()) {
    const bool cycle = test::one_cycle_cases().contains(name);
    const Index steps = cycle ? test::one_cycle_cases().at(name).total_steps + 1 : test::kSteps;
    const auto optimizer = test::make_stock_sgd(), rewound = test::make_stock_sgd();
    const auto whole = make(*optimizer), back = make(*rewound);
    std::vector<std::string> states;
    std::vector<std::vector<double>> settings;
    for (Index t = 0; t < steps; ++t) {
      if (t > 0) whole->step();
      states.push_back(Json(whole->state_dict()).dump());
      settings.push_back(settings_of(*optimizer));
    }
    for (int repeat = 0; repeat < 6; ++repeat) {
      const auto at = static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(steps)));
      const auto state = parse_json(states[at], "state").get<SchedulerState>();
      const auto fresh = test::make_stock_sgd();
      const auto resumed = make(*fresh);
      resumed->load_state_dict(state);
      back->load_state_dict(state);  // forth and back in one process
      EXPECT_EQ(settings_of(*rewound), settings[at]) << name << " at " << at;
      for (std::size_t t = at; t < settings.size(); ++t) {
        if (t > at) resumed->step();
        ASSERT_EQ(settings_of(*fresh), settings[t]) << name << " from " << at << " at " << t;
      }
    }
  }
}

TEST(State, that_does_not_fit_is_refused_and_changes_nothing) {
  const auto optimizer = test::make_stock_sgd();
  OneCycleLR scheduler(*optimizer, {.max_lr = {1}, .total_steps = 10});
  const auto before = settings_of(*optimizer);
  const SchedulerState good = scheduler.state_dict();
  const auto load = [&](auto change, ErrorCategory category = ErrorCategory::InvalidArgument) {
    SchedulerState bad = good;
    change(bad);
    return refusal([&] { scheduler.load_state_dict(bad); }, category);
  };
  EXPECT_THAT(load([](auto& state) { state.kind = "CosineLR"; }), HasSubstr("CosineLR"));
  EXPECT_THAT(load([](auto& state) { state.step = -1; }), HasSubstr("step"));
  EXPECT_THAT(load([](auto& state) { state.step = 11; }), HasSubstr("total_steps"));
  EXPECT_THAT(load([](auto& state) { state.base_rates.pop_back(); }), HasSubstr("groups"));
  EXPECT_EQ(scheduler.last_step(), 0);
  EXPECT_EQ(settings_of(*optimizer), before);
  const Json damaged = {{"kind", "OneCycleLR"}, {"step", "two"}, {"base_rates", {1, 1}}};
  EXPECT_NE(refusal([&] { damaged.get<SchedulerState>(); }, ErrorCategory::CorruptFile), "");
}

TEST(ReduceOnPlateauLR, counts_nan_as_bad_and_keeps_to_patience_cooldown_and_minimum) {
  const auto optimizer = test::make_stock_sgd();
  ReduceOnPlateauLR scheduler(*optimizer,
                              {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = {0.15, 0}});
  const auto after = [&](double metric) {
    scheduler.step(metric);
    return scheduler.last_rates()[0];
  };
  EXPECT_EQ(after(kNaN), 0.4);
  EXPECT_EQ(after(1), 0.4) << "better than nothing";
  EXPECT_EQ(after(kNaN), 0.4);
  EXPECT_EQ(after(1), 0.2) << "not better: the second bad one";
  EXPECT_EQ(after(1), 0.2) << "cooldown";
  EXPECT_EQ(after(1), 0.2);
  EXPECT_EQ(after(1), 0.15) << "the minimum";
  EXPECT_EQ(scheduler.last_rates()[1], 0.03 / 4);
}

TEST(ReduceOnPlateauLR, restored_at_any_step_continues_bit_for_bit) {
  for (const auto& [name, options] : test::plateau_cases()) {
    const auto optimizer = test::make_stock_sgd();
    ReduceOnPlateauLR whole(*optimizer, options);
    for (const Index at : {0, 1, 40, 75, 300}) {
      const auto fresh = test::make_hone_sgd();
      ReduceOnPlateauLR resumed(*fresh, options);
      const std::string state = Json(whole.state_dict()).dump();
      resumed.load_state_dict(parse_json(state, "state").get<ReduceOnPlateauLRState>());
      for (Index t = at; t < at + 90; ++t) {
        whole.step(test::plateau_metric(t));
        resumed.step(test::plateau_metric(t));
        ASSERT_EQ(resumed.last_rates(), whole.last_rates()) << name << " from " << at;
      }
      EXPECT_EQ(Json(resumed.state_dict()), Json(whole.state_dict()));
    }
  }
}

TEST(ReduceOnPlateauLR, refuses_nonsense_and_state_that_does_not_fit) {
  using Options = ReduceOnPlateauLROptions;
  const auto make = [](const Options& options) {
    return [=](Optimizer& optimizer) { ReduceOnPlateauLR(optimizer, options); };
  };
  expect_refused("factor", make({.factor = 1}));
  expect_refused("patience", make({.patience = -1}));
  expect_refused("threshold", make({.threshold = kNaN}));
  expect_refused("relative threshold", make({.threshold = 1}));
  expect_refused("cooldown", make({.cooldown = -1}));
  expect_refused("min_lr", make({.min_lr = {1, 2, 3}}));
  expect_refused("eps", make({.eps = -1}));
  const auto optimizer = test::make_stock_sgd();
  ReduceOnPlateauLR scheduler(*optimizer);
  ReduceOnPlateauLRState state = scheduler.state_dict();
  state.rates = {1};
  EXPECT_THAT(refusal([&] { scheduler.load_state_dict(state); }), HasSubstr("2 groups"));
  EXPECT_NE(refusal([] { Json("?").get<ReduceOnPlateauLRState>(); }, ErrorCategory::CorruptFile),
            "");
}

// The C++ block of the guide, line by line.
TEST(Guide, example_warms_up_and_decays) {
  torch::nn::Linear model(2, 1);
  const auto loss_of = [&](int) { return model->forward(torch::ones({1, 2})).sum(); };
  // clang-format off
  using namespace hone::optim;
  AdamW optimizer(model->parameters(), AdamWOptions(4e-3));
  const auto warmup = std::make_shared<WarmupLR>(optimizer, WarmupLROptions{.steps = 50});
  const auto cosine = std::make_shared<CosineLR>(optimizer, 950, /*eta_min=*/4e-4);
  SequentialLR scheduler(optimizer, {warmup, cosine}, /*milestones=*/{50});
  for (int step = 0; step < 1000; ++step) {
    optimizer.zero_grad();
    loss_of(step).backward();
    optimizer.step();
    scheduler.step();
  }
  // clang-format on
  EXPECT_EQ(scheduler.last_step(), 1000);
  EXPECT_NEAR(scheduler.last_rates()[0], 4e-4, 1e-12);
  EXPECT_EQ(scheduler.rate_at(50, 0, 4e-3), 4e-3);
}

// The guide's second block.
SchedulerPtr choose_scheduler(const std::string& name, torch::optim::Optimizer& optimizer,
                              hone::Index steps) {
  if (name == "cosine") return std::make_shared<CosineLR>(optimizer, steps);
  return std::make_shared<WarmupLR>(optimizer, WarmupLROptions{.steps = steps});
}

TEST(Guide, one_variable_holds_whichever_scheduler_is_chosen) {
  const auto optimizer = test::make_hone_sgd();
  SchedulerPtr scheduler = choose_scheduler("cosine", *optimizer, 10);
  EXPECT_EQ(scheduler->kind(), "CosineLR");
  EXPECT_EQ(scheduler->last_rates()[0], kRates[0]);
  scheduler->step();
  EXPECT_NEAR(scheduler->last_rates()[0], kRates[0] * (1 + std::cos(std::numbers::pi / 10)) / 2,
              1e-15);
  const auto other = test::make_stock_sgd();
  scheduler = choose_scheduler("warm-up", *other, 10);
  EXPECT_EQ(scheduler->kind(), "WarmupLR");
  scheduler->step();
  EXPECT_DOUBLE_EQ(scheduler->last_rates()[0], kRates[0] / 10);
  // LibTorch's own schedulers fit into the base class that they share.
  std::vector<std::shared_ptr<torch::optim::LRScheduler>> all = {
      scheduler, std::make_shared<torch::optim::StepLR>(*optimizer, 1, 0.5)};
  for (const auto& one : all) one->step();
  EXPECT_DOUBLE_EQ(scheduler->last_rates()[0], kRates[0] / 5);
}

// The lines of the guide's block that begins with `begin` are also here, indented by `indent`.
void expect_lines_here(const std::string& begin, const std::string& indent, int count) {
  const std::string guide = read_text_file(hone::test::source_file("docs/guide-training.md"));
  const std::string test =
      read_text_file(hone::test::source_file("tests/train/optim/lr/scheduler_test.cc"));
  const std::size_t at = guide.find(begin);
  ASSERT_NE(at, std::string::npos);
  std::istringstream block(guide.substr(at, guide.find("```", at) - at));
  int lines = 0;
  for (std::string line; std::getline(block, line); ++lines) {
    EXPECT_THAT(test, HasSubstr("\n" + indent + line + "\n"));
  }
  EXPECT_EQ(lines, count);
}

TEST(Guide, shows_the_examples_as_they_are_tested) {
  expect_lines_here("using namespace hone::optim;", "  ", 11);
  expect_lines_here("SchedulerPtr choose_scheduler(", "", 5);
}

}  // namespace
}  // namespace hone::optim
