// SPDX-License-Identifier: Apache-2.0
// Every scheduler against Python's torch.optim.lr_scheduler.
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/lr/group_momentum.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"
#include "tests/train/optim/lr/cases_support.h"

namespace hone::optim::test {
namespace {

using torch::optim::Optimizer;

class Peer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!hone::test::missing_peer({"torch"}).empty()) return;
    const hone::test::TemporaryFolder folder;
    const auto out = folder.path() / "out.json";
    hone::test::run_peer("tests/train/optim/lr/peer_schedulers.py", {out.string()});
    answers_ = read_json_file(out);
  }
  void SetUp() override { HONE_REQUIRE_PEER("torch"); }

  static Json answers_;
};
Json Peer::answers_;

void expect_rates(const std::vector<double>& got, const Json& want, const double* scale,
                  const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t g = 0; g < got.size(); ++g) {
    EXPECT_LE(std::abs(got[g] - want[g].get<double>()), 1e-12 * scale[g])
        << where << " group " << g << ": " << got[g] << " against " << want[g];
  }
}

TEST_F(Peer, gives_the_same_rates_for_1000_steps_on_stock_and_hone_optimizers) {
  for (const auto& [name, make] : scheduler_cases()) {
    const Json& rates = answers_.at(name).at("rates");
    ASSERT_EQ(rates.size(), static_cast<std::size_t>(kSteps));
    for (const auto make_optimizer : {make_stock_sgd, make_hone_sgd}) {
      const auto optimizer = make_optimizer();
      const auto scheduler = make(*optimizer);
      for (std::size_t t = 0; t < rates.size(); ++t) {
        if (t > 0) scheduler->step();
        expect_rates(scheduler->last_rates(), rates[t], kRates, concat(name, " step ", t));
        if (HasFailure()) return;
      }
    }
  }
}

using MakeOptimizer = std::unique_ptr<Optimizer> (*)();

TEST_F(Peer, one_cycle_gives_the_same_rates_and_momentum_to_its_last_step) {
  // Beside the Python class whose momentum they have: TAM's is SGD's, Lion's the first beta.
  const std::vector<std::pair<std::string, MakeOptimizer>> optimizers = {
      {"sgd", make_stock_sgd},
      {"sgd", make_hone_sgd},
      {"sgd", [] { return make_two_groups<TAM>(TAMOptions(1)); }},
      {"sgd", [] { return make_two_groups<AdaTAM>(AdaTAMOptions(1)); }},
      {"sgd", [] { return make_two_groups<AdaTAMW>(AdaTAMWOptions(1)); }},
      {"adam", [] { return make_two_groups<Adam>(AdamOptions(1)); }},
      {"adam", [] { return make_two_groups<Lion>(LionOptions(1)); }},
      {"adam", [] { return make_two_groups<torch::optim::Adam>(torch::optim::AdamOptions(1)); }},
      {"adamw", [] { return make_two_groups<torch::optim::AdamW>(torch::optim::AdamWOptions(1)); }},
      {"adamw", [] { return make_two_groups<AdamW>(AdamWOptions(1)); }},
      {"rmsprop",
       [] { return make_two_groups<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1)); }},
  };
  for (const auto& [name, options] : one_cycle_cases()) {
    for (const auto& [kind, make] : optimizers) {
      const Json& want = answers_.at(concat(name, "/", kind));
      const auto optimizer = make();
      const auto& group = optimizer->param_groups()[1].options();
      const double before = *get_momentum(group);
      OneCycleLR scheduler(*optimizer, options);
      const double scale[] = {options.max_lr.front(), options.max_lr.back()};
      ASSERT_GE(want["rates"].size(), 10u);
      for (std::size_t t = 0; t < want["rates"].size(); ++t) {
        if (t > 0) scheduler.step();
        const std::string where = concat(name, "/", kind, " step ", t);
        expect_rates(scheduler.last_rates(), want["rates"][t], scale, where);
        const double momentum = options.cycle_momentum ? want["momentum"][t].get<double>() : before;
        EXPECT_NEAR(*get_momentum(group), momentum, 1e-12) << where;
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Peer, reduce_on_plateau_reduces_at_the_same_metrics) {
  for (const auto& [name, options] : plateau_cases()) {
    const Json& rates = answers_.at(name).at("rates");
    ASSERT_EQ(rates.size(), 1000u);
    const auto optimizer = make_stock_sgd();
    ReduceOnPlateauLR scheduler(*optimizer, options);
    std::set<double> seen;
    for (std::size_t t = 0; t < rates.size(); ++t) {
      scheduler.step(plateau_metric(static_cast<Index>(t)));
      expect_rates(scheduler.last_rates(), rates[t], kRates, concat(name, " step ", t));
      seen.insert(scheduler.last_rates()[0]);
      if (HasFailure()) return;
    }
    EXPECT_GE(seen.size(), 3u) << name;
  }
}

TEST_F(Peer, and_this_test_have_the_same_cases) {
  std::set<std::string> theirs, ours;
  for (const auto& [name, unused] : answers_.items()) theirs.insert(name.substr(0, name.find('/')));
  for (const auto& [name, unused] : scheduler_cases()) ours.insert(name);
  for (const auto& [name, unused] : one_cycle_cases()) ours.insert(name);
  for (const auto& [name, unused] : plateau_cases()) ours.insert(name);
  EXPECT_EQ(ours, theirs);
}

}  // namespace
}  // namespace hone::optim::test
