// SPDX-License-Identifier: Apache-2.0
// What options mean: those of groups, TAM's methods and presets, state of fewer bits, moving
// averages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <sstream>

#include "hone/core/error.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using hone::test::error_of;
using test::set_normal_gradients;
using Tensors = std::vector<torch::Tensor>;
using testing::HasSubstr;

Tensors params_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  torch::manual_seed(11);
  Tensors params;
  for (const auto& shape : shapes) params.push_back((torch::rand(shape) - 0.5).requires_grad_());
  return params;
}

std::vector<std::string> methods_of(const TAMOptions& options, Tensors params) {
  TAM optimizer(params, options);
  set_normal_gradients(params, 900);
  std::vector<std::string> names;
  for (const TensorPlanEntry& entry : optimizer.plan()) names.push_back(entry.method);
  return names;
}

Index state_bytes(const MultiTensorOptimizer& optimizer) {
  Index bytes = 0;
  for (const NamedState& item : optimizer.export_state()) {
    if (item.name != "step") bytes += static_cast<Index>(item.value.nbytes());
  }
  return bytes;
}

TEST(Methods, presets_mean_what_the_guide_says) {
  const Tensors params = params_of({{900}, {1100}, {40, 40}});
  using testing::ElementsAre;
  EXPECT_THAT(methods_of(TAMOptions::high_performance(1), params),
              ElementsAre("manual", "cosine_similarity", "vectorized"));
  EXPECT_THAT(methods_of(TAMOptions::stable(1), params), ElementsAre("manual", "manual", "manual"));
  EXPECT_FALSE(TAMOptions::stable(1).use_inplace_ops());
  EXPECT_THAT(methods_of(TAMOptions::large_model(1), params),
              ElementsAre("vectorized", "vectorized", "vectorized"));
  EXPECT_EQ(TAMOptions::memory_limited(1).state_dtype(), StateDtype::BFloat16);
  EXPECT_THAT(methods_of(TAMOptions::for_model_size(1, 5e7), params),
              ElementsAre("manual", "manual", "manual"));
  EXPECT_THAT(methods_of(TAMOptions::for_model_size(1, 5e8), params),
              ElementsAre("cosine_similarity", "cosine_similarity", "vectorized"));
  EXPECT_THAT(methods_of(TAMOptions::for_model_size(1, 5e9), params),
              ElementsAre("vectorized", "vectorized", "vectorized"));
}

TEST(Methods, a_method_of_another_scope_is_an_error_that_names_both) {
  Tensors params = params_of({{10}});
  const auto refused = [&](TAMScope scope, CorrelationMethod method) {
    return error_of([&] { TAM(params, TAMOptions(1).scope(scope).correlation_method(method)); });
  };
  EXPECT_THAT(refused(TAMScope::Row, CorrelationMethod::Manual),
              HasSubstr("scope row, got manual"));
  EXPECT_THAT(refused(TAMScope::Tensor, CorrelationMethod::Auto),
              HasSubstr("auto, of scope by shape"));
  EXPECT_EQ(refused(TAMScope::Row, CorrelationMethod::Vectorized), "no error");
}

TEST(Methods, changing_the_method_between_steps_is_noticed) {
  Tensors a = params_of({{50, 60}}), b = params_of({{50, 60}});
  TAM changed(a, TAMOptions(0.01)), rows(b, TAMOptions(0.01).scope(TAMScope::Row));
  set_normal_gradients(a, 900);
  changed.step();
  static_cast<TAMOptions&>(changed.param_groups()[0].options()).scope(TAMScope::Row);
  set_normal_gradients(a, 901);
  changed.step();
  bool has_rows = false;
  for (const NamedState& item : changed.export_state()) {
    has_rows = has_rows || (item.name == "correlation" && item.value.numel() == 50);
  }
  EXPECT_TRUE(has_rows);
  for (const int seed : {900, 901}) {
    set_normal_gradients(b, seed);
    rows.step();
  }
  // Without a momentum, the correlation of the first step is 0 in both scopes.
  EXPECT_LE(test::worst_difference(a, b), test::kBound);
}

TEST(SuggestLr, divides_by_the_damping_that_a_run_settled_at) {
  Tensors params = params_of({{1000}});
  TAM optimizer(params, TAMOptions(1e-3));
  EXPECT_THAT(error_of([&] { suggest_lr(0.1, optimizer.stats()); }), HasSubstr("has taken steps"));
  for (int t = 0; t < 200; ++t) {
    set_normal_gradients(params, 900);  // one constant gradient: d tends to 1
    optimizer.step();
  }
  EXPECT_NEAR(suggest_lr(0.1, optimizer.stats()), 0.1, 1e-6);
}

TEST(SuggestLr, refuses_a_damping_of_zero) {
  OptimizerStats stats;
  stats.steps = 3;
  EXPECT_THAT(error_of([&] { suggest_lr(0.1, stats); }), HasSubstr("damps"));
}

TEST(Groups, beyond_the_number_that_plans_count_are_refused) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (int i = 0; i < (1 << 16) + 1; ++i) groups.emplace_back(std::vector<torch::Tensor>());
  EXPECT_THAT(error_of([&] { SGD(groups, SGDOptions(0.1)); }), HasSubstr("65536"));
}

// ---- options of groups

using Group = torch::optim::OptimizerParamGroup;
using Groups = std::vector<Group>;

torch::Tensor matrix() { return torch::ones({4, 4}).requires_grad_(); }

template <class Options>
Group group_with(const Options& options) {
  return {{matrix()}, std::make_unique<Options>(options)};
}
template <class Options>
const Options& options_at(MultiTensorOptimizer& optimizer, std::size_t g) {
  return static_cast<const Options&>(optimizer.param_groups()[g].options());
}

template <class Rule, class Options>
void check_groups_of(const Options& plain) {
  const double usual = plain.weight_decay();
  const Options changed = Options(plain).weight_decay(0.25).maximize(true);
  const Options back = Options(plain).weight_decay(usual).maximize(false);
  Rule optimizer(Groups{group_with(back), group_with(plain), Group({matrix()})}, changed);
  optimizer.add_param_group(group_with(back));
  optimizer.add_param_group(group_with(plain));
  for (const std::size_t g : {0, 3}) {
    EXPECT_EQ(options_at<Options>(optimizer, g).weight_decay(), usual) << g;
    EXPECT_FALSE(options_at<Options>(optimizer, g).maximize()) << g;
  }
  for (const std::size_t g : {1, 2, 4}) {
    EXPECT_EQ(options_at<Options>(optimizer, g).weight_decay(), 0.25) << g;
    EXPECT_TRUE(options_at<Options>(optimizer, g).maximize()) << g;
  }
  // Options that a group has are whole: another optimizer changes nothing of them.
  Rule source(Groups{Group({matrix()}), group_with(plain)}, plain);
  for (const std::size_t g : {0, 1}) {
    Rule taker(Groups{Group({matrix()}, source.param_groups()[g].options().clone())}, changed);
    EXPECT_EQ(options_at<Options>(taker, 0).weight_decay(), usual) << g;
    EXPECT_FALSE(options_at<Options>(taker, 0).maximize()) << g;
  }
}

TEST(GroupOptions, what_is_set_survives_where_it_equals_the_default) {
  check_groups_of<SGD>(SGDOptions(0.1));
  check_groups_of<Adam>(AdamOptions());
  check_groups_of<AdamW>(AdamWOptions());
  check_groups_of<Adagrad>(AdagradOptions());
  check_groups_of<Lion>(LionOptions());
  check_groups_of<Muon>(MuonOptions());
  check_groups_of<TAM>(TAMOptions(0.1));
  check_groups_of<AdaTAM>(AdaTAMOptions(0.1));
  check_groups_of<AdaTAMW>(AdaTAMWOptions(0.1));
}

template <class Rule, class Options>
void check_rates_of(double usual) {
  Options set_later;
  set_later.set_lr(usual);
  Rule optimizer(Groups{group_with(Options(usual)), group_with(set_later), group_with(Options())},
                 Options(0.5));
  EXPECT_EQ(options_at<Options>(optimizer, 0).lr(), usual);
  EXPECT_EQ(options_at<Options>(optimizer, 1).lr(), usual);
  EXPECT_EQ(options_at<Options>(optimizer, 2).lr(), 0.5);
}

TEST(GroupOptions, a_rate_given_to_a_constructor_is_set) {
  check_rates_of<Adam, AdamOptions>(1e-3);
  check_rates_of<AdamW, AdamWOptions>(1e-3);
  check_rates_of<Adagrad, AdagradOptions>(1e-2);
  check_rates_of<Lion, LionOptions>(1e-4);
  check_rates_of<Muon, MuonOptions>(1e-3);
}

// Its classes do not note what was set.
TEST(GroupOptions, libtorchs_classes_keep_its_rule) {
  using Theirs = torch::optim::AdamWOptions;
  AdamW optimizer(Groups{group_with(Theirs().weight_decay(1e-2)), group_with(Theirs(1e-3)),
                         group_with(Theirs().weight_decay(0).eps(1e-4))},
                  AdamWOptions(0.5).weight_decay(0.25).amsgrad(true));
  EXPECT_EQ(options_at<AdamWOptions>(optimizer, 0).weight_decay(), 0.25);
  EXPECT_EQ(options_at<AdamWOptions>(optimizer, 1).lr(), 0.5);
  EXPECT_EQ(options_at<AdamWOptions>(optimizer, 2).weight_decay(), 0);
  EXPECT_EQ(options_at<AdamWOptions>(optimizer, 2).eps(), 1e-4);
  EXPECT_TRUE(options_at<AdamWOptions>(optimizer, 2).amsgrad());
  SGD sgd(Groups{group_with(torch::optim::SGDOptions(0.1).momentum(0.5))},
          SGDOptions(0.3).weight_decay(0.25));
  EXPECT_EQ(options_at<SGDOptions>(sgd, 0).lr(), 0.1);
  EXPECT_EQ(options_at<SGDOptions>(sgd, 0).weight_decay(), 0.25);
}

template <class Rule, class Options>
void check_archived(const Options& plain, const Options& changed) {
  torch::serialize::OutputArchive out;
  plain.serialize(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  Options loaded(0.125);
  loaded.serialize(in);
  Rule optimizer(Groups{group_with(loaded)}, changed);
  EXPECT_EQ(options_at<Options>(optimizer, 0).weight_decay(), plain.weight_decay());
  Rule read(Groups{Group({matrix()})}, changed);
  read.import_all(Rule(Groups{Group({matrix()})}, plain).param_groups_json(), {});
  Rule taker(Groups{Group({matrix()}, read.param_groups()[0].options().clone())}, changed);
  EXPECT_EQ(options_at<Options>(taker, 0).weight_decay(), plain.weight_decay());
}

TEST(GroupOptions, those_of_archives_and_json_inherit_nothing) {
  check_archived<AdamW>(AdamWOptions(), AdamWOptions().weight_decay(0.25));
  check_archived<Lion>(LionOptions(), LionOptions().weight_decay(0.25));
  check_archived<Muon>(MuonOptions(), MuonOptions().weight_decay(0.25));
  check_archived<TAM>(TAMOptions(1), TAMOptions(1).weight_decay(0.25));
}

// ---- state of fewer bits

TEST(StateBits, take_the_stated_bytes_per_parameter) {
  const Index n = 1 << 20;
  for (const auto& [dtype, wanted] : {std::pair{StateDtype::Float32, 8.0},
                                      {StateDtype::BFloat16, 4.0},
                                      {StateDtype::Block8, 2.03}}) {
    Tensors params = params_of({{1024, 1024}});
    AdamW optimizer(params, AdamWOptions(1e-3).state_dtype(dtype));
    set_normal_gradients(params, 900);
    optimizer.step();
    EXPECT_NEAR(static_cast<double>(state_bytes(optimizer)) / static_cast<double>(n) / wanted, 1,
                0.01);
  }
}

TEST(StateBits, small_tensors_stay_in_fp32_and_groups_may_differ) {
  Tensors params = params_of({{4095}, {4096}, {100, 100}});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{params[0], params[1]});
  groups.emplace_back(
      Tensors{params[2]},
      std::make_unique<AdamWOptions>(AdamWOptions(2e-3).state_dtype(StateDtype::BFloat16)));
  AdamW optimizer(groups, AdamWOptions(1e-3).state_dtype(StateDtype::Block8));
  set_normal_gradients(params, 900);
  optimizer.step();
  std::vector<StateDtype> kept;
  for (const TensorPlanEntry& entry : optimizer.plan()) kept.push_back(entry.state_dtype);
  EXPECT_EQ(kept, (std::vector{StateDtype::Float32, StateDtype::Block8, StateDtype::BFloat16}));
  for (const NamedState& item : optimizer.export_state()) {
    if (item.name != "exp_avg") continue;
    const at::ScalarType types[] = {at::kFloat, at::kChar, at::kBFloat16};
    EXPECT_EQ(item.value.scalar_type(), types[item.parameter]);
  }
}

TEST(StateBits, fp32_state_moves_into_fewer_bits_and_back) {
  Tensors params = params_of({{100, 100}});
  AdamW full(params, AdamWOptions(1e-3));
  for (int t = 0; t < 10; ++t) {
    set_normal_gradients(params, 900 + t);
    full.step();
  }
  for (const StateDtype dtype : {StateDtype::BFloat16, StateDtype::Block8}) {
    AdamW narrow(params, AdamWOptions(1e-3).state_dtype(dtype)), back(params, AdamWOptions(1e-3));
    narrow.import_state(full.export_state());
    back.import_state(narrow.export_state());
    const torch::Tensor mean = full.export_state()[1].value, again = back.export_state()[1].value;
    ASSERT_EQ(again.scalar_type(), at::kFloat);
    const double bound = dtype == StateDtype::BFloat16 ? 0x1p-8 : 0x1p-4;
    EXPECT_LE(((again - mean).abs() / (mean.abs() + 1e-4 * mean.abs().max())).max().item<double>(),
              bound);
  }
}

TEST(StateBits, bf16_parameters_and_gradients_train) {
  torch::manual_seed(4);
  const torch::Tensor target = torch::randn({4096});
  torch::Tensor param = torch::zeros({4096}, at::kBFloat16).requires_grad_();
  AdamW optimizer({param}, AdamWOptions(0.02).weight_decay(0).state_dtype(StateDtype::BFloat16));
  for (int t = 0; t < 600; ++t) {
    param.mutable_grad() = (param.detach().to(at::kFloat) - target).to(at::kBFloat16);
    optimizer.step();
  }
  EXPECT_LT((param.detach().to(at::kFloat) - target).abs().mean().item<double>(), 0.02);
}

TEST(StateBits, chains_refuse_them) {
  Tensors params = params_of({{5000}});
  AdamW optimizer(
      params,
      AdamWOptions(1e-3).state_dtype(StateDtype::Block8).implementation(Implementation::Foreach));
  set_normal_gradients(params, 900);
  EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("fewer than 32 bits"));
}

// ---- moving averages

TEST(Averages, follow_the_parameters_and_survive_saving) {
  Tensors params = params_of({{300, 30}, {7}});
  auto optimizer = std::make_unique<AdamW>(params, AdamWOptions(0.1));
  Tensors exact;
  for (const torch::Tensor& param : params) exact.push_back(param.detach().to(at::kDouble));
  for (int t = 0; t < 20; ++t) {
    set_normal_gradients(params, 900 + t);
    optimizer->step_with({.ema_decay = 0.75});
    for (std::size_t i = 0; i < params.size(); ++i) {
      exact[i].mul_(0.75).add_(params[i].detach().to(at::kDouble), 0.25);
    }
    if (t != 10) continue;
    auto next = std::make_unique<AdamW>(params, AdamWOptions(0.1));
    next->import_state(optimizer->export_state());
    optimizer = std::move(next);
  }
  const Tensors averages = optimizer->averages();
  for (std::size_t i = 0; i < params.size(); ++i) {
    EXPECT_LE((averages[i] - exact[i]).abs().max().item<double>(), 1e-5);
  }
  set_normal_gradients(params, 921);
  optimizer->step();  // without a decay they rest
  EXPECT_TRUE(optimizer->averages()[0].equal(averages[0]));
}

}  // namespace
}  // namespace hone::optim
