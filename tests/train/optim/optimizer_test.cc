// SPDX-License-Identifier: Apache-2.0
// The classes as torch::optim::Optimizer: groups, closures, state, archives, hostile input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <limits>
#include <sstream>

#include "hone/core/error.h"
#include "hone/train/interop.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"
#include "tests/support/tensors.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using hone::test::copies;
using hone::test::equal;
using hone::test::error_of;
using hone::test::Tensors;
using test::set_normal_gradients;
using testing::HasSubstr;
using testing::Not;

Tensors make_three_params() {
  torch::manual_seed(3);
  Tensors params{torch::rand({40, 17}), torch::rand({20'000}), torch::rand({5})};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

// `make` builds the optimizer under test over given parameters.
template <class Make>
void check_archive_round_trip(const Make& make) {
  Tensors straight = make_three_params(), resumed = make_three_params();
  auto a = make(straight);
  auto before = make(resumed);
  for (int t = 0; t < 7; ++t) {
    for (Tensors* params : {&straight, &resumed}) set_normal_gradients(*params, 500 + t);
    a->step();
    before->step();
  }
  std::stringstream archive;
  torch::save(*before, archive);
  auto after = make(resumed);
  torch::load(*after, archive);
  for (int t = 7; t < 14; ++t) {
    for (Tensors* params : {&straight, &resumed}) set_normal_gradients(*params, 500 + t);
    a->step();
    after->step();
  }
  EXPECT_TRUE(equal(straight, resumed));
}

template <class Make>
void check_export_round_trip(const Make& make) {
  Tensors straight = make_three_params(), resumed = make_three_params();
  auto a = make(straight);
  auto before = make(resumed);
  for (int t = 0; t < 7; ++t) {
    for (Tensors* params : {&straight, &resumed}) set_normal_gradients(*params, 500 + t);
    a->step();
    before->step();
  }
  auto after = make(resumed);
  after->import_state(before->export_state());
  for (int t = 7; t < 14; ++t) {
    for (Tensors* params : {&straight, &resumed}) set_normal_gradients(*params, 500 + t);
    a->step_with({.clip_norm = 3});
    after->step_with({.clip_norm = 3});
  }
  EXPECT_TRUE(equal(straight, resumed));
}

template <class Check>
void for_each_rule(const Check& check) {
  check([](Tensors& p) { return std::make_unique<SGD>(p, SGDOptions(0.01).momentum(0.9)); });
  check([](Tensors& p) { return std::make_unique<AdamW>(p, AdamWOptions(1e-3)); });
  check([](Tensors& p) { return std::make_unique<AdamW>(p, AdamWOptions(1e-3).amsgrad(true)); });
  check([](Tensors& p) { return std::make_unique<TAM>(p, TAMOptions(0.01)); });
  check(
      [](Tensors& p) { return std::make_unique<TAM>(p, TAMOptions(0.01).scope(TAMScope::Model)); });
  check([](Tensors& p) { return std::make_unique<AdaTAMW>(p, AdaTAMWOptions(1e-4)); });
  check([](Tensors& p) { return std::make_unique<Adam>(p, AdamOptions(1e-3).weight_decay(0.1)); });
  check([](Tensors& p) { return std::make_unique<Adagrad>(p, AdagradOptions(1e-2)); });
  check([](Tensors& p) {
    return std::make_unique<RMSprop>(p, RMSpropOptions(1e-3).momentum(0.9).centered(true));
  });
  check([](Tensors& p) { return std::make_unique<Lion>(p, LionOptions(1e-4)); });
  check([](Tensors& p) {
    return std::make_unique<AdaTAM>(
        p, AdaTAMOptions(1e-3).momentum_form(MomentumForm::Ema).bias_correction(true));
  });
  check([](Tensors& p) { return std::make_unique<TAM>(p, TAMOptions(0.01).scope(TAMScope::Row)); });
  check([](Tensors& p) { return std::make_unique<TAM>(p, TAMOptions::high_performance(0.01)); });
  for (const StateDtype dtype : {StateDtype::BFloat16, StateDtype::Block8}) {
    check([dtype](Tensors& p) {
      return std::make_unique<AdamW>(p, AdamWOptions(1e-3).state_dtype(dtype));
    });
    check([dtype](Tensors& p) {
      return std::make_unique<Adagrad>(
          p, AdagradOptions(1e-3).initial_accumulator_value(0.1).state_dtype(dtype));
    });
    check([dtype](Tensors& p) {
      return std::make_unique<TAM>(p, TAMOptions(0.01).state_dtype(dtype));
    });
  }
}

TEST(State, archive_round_trip_continues_bit_for_bit) {
  for_each_rule([](const auto& make) { check_archive_round_trip(make); });
}

TEST(State, export_and_import_continue_bit_for_bit) {
  for_each_rule([](const auto& make) { check_export_round_trip(make); });
}

TEST(State, archives_move_between_libtorch_and_hone) {
  Tensors ours = make_three_params(), theirs = make_three_params();
  torch::optim::AdamW first(theirs, torch::optim::AdamWOptions(1e-3).weight_decay(0.1));
  for (int t = 0; t < 5; ++t) {
    set_normal_gradients(theirs, 500 + t);
    first.step();
  }
  std::stringstream archive, back;
  torch::save(first, archive);
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < ours.size(); ++i) ours[i].copy_(theirs[i]);
  }
  AdamW second(ours, AdamWOptions(0.5));
  torch::load(second, archive);
  EXPECT_EQ(second.param_groups()[0].options().get_lr(), 1e-3);
  for (int t = 5; t < 10; ++t) {
    for (Tensors* params : {&ours, &theirs}) set_normal_gradients(*params, 500 + t);
    first.step();
    second.step();
  }
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].allclose(theirs[i], 0, 1e-6));
  torch::save(second, back);
  torch::load(first, back);  // LibTorch reads hone's
  for (Tensors* params : {&ours, &theirs}) set_normal_gradients(*params, 511);
  first.step();
  second.step();
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].allclose(theirs[i], 0, 2e-6));
}

// Each continues from what the other has saved after the same steps.
template <class Own, class Theirs, class OwnOptions, class TheirOptions>
void check_exchanged_archives(const OwnOptions& own, const TheirOptions& theirs) {
  Tensors ours = make_three_params(), others = make_three_params();
  const auto step = [](auto& optimizer, Tensors& params, int first) {
    for (int t = first; t < first + 4; ++t) {
      set_normal_gradients(params, 500 + t);
      optimizer.step();
    }
  };
  std::stringstream from_own, from_theirs;
  {
    Own a(ours, own);
    Theirs b(others, theirs);
    step(a, ours, 0);
    step(b, others, 0);
    torch::save(a, from_own);
    torch::save(b, from_theirs);
  }
  Own a(ours, OwnOptions(0.5));
  Theirs b(others, TheirOptions(0.5));
  torch::load(a, from_theirs);
  torch::load(b, from_own);
  step(a, ours, 4);
  step(b, others, 4);
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].allclose(others[i], 0, 2e-6));
}

TEST(State, libtorchs_classes_and_hones_continue_from_each_others_archives) {
  check_exchanged_archives<SGD, torch::optim::SGD>(
      SGDOptions(0.01).momentum(0.9).dampening(0.2),
      torch::optim::SGDOptions(0.01).momentum(0.9).dampening(0.2));
  check_exchanged_archives<SGD, torch::optim::SGD>(SGDOptions(0.01),
                                                   torch::optim::SGDOptions(0.01));
  check_exchanged_archives<Adam, torch::optim::Adam>(AdamOptions(0.01).amsgrad(true),
                                                     torch::optim::AdamOptions(0.01).amsgrad(true));
  check_exchanged_archives<AdamW, torch::optim::AdamW>(
      AdamWOptions(0.01).amsgrad(true), torch::optim::AdamWOptions(0.01).amsgrad(true));
  check_exchanged_archives<Adagrad, torch::optim::Adagrad>(
      AdagradOptions(0.01).lr_decay(0.1), torch::optim::AdagradOptions(0.01).lr_decay(0.1));
}

TEST(State, names_and_types_are_those_of_the_python_layout) {
  Tensors params = make_three_params();
  AdaTAMW optimizer(params, AdaTAMWOptions(1e-3));
  EXPECT_TRUE(optimizer.export_state().empty());
  set_normal_gradients(params, 500);
  params[1].mutable_grad() = torch::Tensor();
  optimizer.step();
  std::vector<std::string> names;
  for (const NamedState& item : optimizer.export_state()) {
    names.push_back(std::to_string(item.parameter) + "." + item.name);
    const bool is_step = item.name == "step";
    EXPECT_EQ(is_step, item.value.scalar_type() == at::kLong);
  }
  EXPECT_THAT(names,
              testing::ElementsAre("0.step", "0.momentum_buffer", "0.exp_avg_sq", "0.correlation",
                                   "2.step", "2.momentum_buffer", "2.exp_avg_sq", "2.correlation"));
}

TEST(State, import_of_state_that_does_not_fit_changes_nothing) {
  Tensors params = make_three_params();
  AdamW optimizer(params, AdamWOptions(1e-3));
  set_normal_gradients(params, 500);
  optimizer.step();
  const std::vector<NamedState> good = optimizer.export_state();
  const auto refused = [&](const std::function<void(std::vector<NamedState>&)>& spoil) {
    std::vector<NamedState> state = good;
    spoil(state);
    const std::string message = error_of([&] { optimizer.import_state(state); });
    EXPECT_EQ(optimizer.export_state().size(), good.size());
    EXPECT_TRUE(optimizer.export_state()[1].value.is_same(good[1].value));
    return message;
  };
  EXPECT_THAT(refused([](auto& s) {
                s[1].value = torch::zeros({41, 17});
              }),
              HasSubstr("exp_avg of parameter 0 of shape [40, 17], got [41, 17]"));
  EXPECT_THAT(refused([](auto& s) { s[1].value = s[1].value.to(at::kDouble); }),
              HasSubstr("exp_avg of parameter 0 in fp32"));
  EXPECT_THAT(refused([](auto& s) { s[1].name = "momentum_buffer"; }),
              HasSubstr("exp_avg of parameter 0, got none"));
  EXPECT_THAT(refused([](auto& s) { s[1].parameter = 3; }), HasSubstr("below 3, got 3"));
  EXPECT_THAT(refused([](auto& s) { s.erase(s.begin()); }), HasSubstr("step of parameter 0"));
  EXPECT_THAT(refused([](auto& s) { s.push_back(s[0]); }), HasSubstr("once"));
  EXPECT_THAT(refused([](auto& s) {
                s.push_back({0, "torque", torch::zeros({})});
              }),
              HasSubstr("torque of parameter 0"));
}

TEST(State, an_archive_of_another_model_is_refused_and_changes_nothing) {
  Tensors params = make_three_params(), others{torch::rand({3}).requires_grad_()};
  TAM optimizer(params, TAMOptions(0.01)), other(others, TAMOptions(0.7));
  set_normal_gradients(params, 500);
  optimizer.step();
  set_normal_gradients(others, 500);
  other.step();
  std::stringstream archive, same_count;
  torch::save(other, archive);
  EXPECT_THAT(error_of([&] { torch::load(optimizer, archive); }), HasSubstr("TAM"));
  Tensors three{torch::rand({4}), torch::rand({4}), torch::rand({4})};
  for (torch::Tensor& tensor : three) tensor.requires_grad_();
  TAM third(three, TAMOptions(0.7));
  set_normal_gradients(three, 500);
  third.step();
  torch::save(third, same_count);
  EXPECT_THAT(error_of([&] { torch::load(optimizer, same_count); }), HasSubstr("of shape"));
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.01);
  EXPECT_EQ(optimizer.export_state().size(), 9u);
}

// What every class steps.
Tensors make_matrices() {
  Tensors params{torch::rand({8, 5}), torch::rand({3, 3})};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

// An archive of an optimizer that has taken `steps` steps over make_matrices().
template <class Any, class Options>
std::string archive_of(const Options& options, int steps = 1) {
  Tensors params = make_matrices();
  Any optimizer(params, options);
  for (int t = 0; t < steps; ++t) {
    set_normal_gradients(params, 500 + t);
    optimizer.step();
  }
  std::ostringstream archive;
  torch::save(optimizer, archive);
  return archive.str();
}

struct Saved {
  const char* of;  // as the error has it
  std::vector<std::string> archives;
};

std::vector<Saved> archives_of_all_classes() {
  return {
      {"SGD", {archive_of<SGD>(SGDOptions(0.1)), archive_of<torch::optim::SGD>(SGDOptions(0.1))}},
      {"Adam or AdamW",
       {archive_of<Adam>(AdamOptions()), archive_of<torch::optim::AdamW>(AdamWOptions()),
        archive_of<AdamW>(AdamWOptions(), 0)}},
      {"Adagrad", {archive_of<Adagrad>(AdagradOptions())}},
      {"RMSprop", {archive_of<torch::optim::RMSprop>(torch::optim::RMSpropOptions())}},
      {"Lion", {archive_of<Lion>(LionOptions()), archive_of<Lion>(LionOptions(), 0)}},
      {"Muon", {archive_of<Muon>(MuonOptions())}},
      {"TAM, AdaTAM or AdaTAMW", {archive_of<TAM>(TAMOptions(0.1))}}};
}

template <class Any, class Options>
void expect_only_own_archives(const char* own, const Options& options) {
  for (const Saved& saved : archives_of_all_classes()) {
    for (const std::string& archive : saved.archives) {
      Any optimizer(make_matrices(), options);
      std::istringstream stream(archive);
      const std::string said =
          hone::test::refusal([&] { torch::load(optimizer, stream); }, ErrorCategory::CorruptFile);
      if (std::string_view(saved.of) == own) {
        EXPECT_EQ(said, "") << own;
        continue;
      }
      EXPECT_THAT(said, HasSubstr(concat(", got one of ", saved.of))) << own;
      EXPECT_THAT(said, HasSubstr("expected an archive of ")) << own;
      EXPECT_TRUE(optimizer.export_state().empty());
    }
  }
}

TEST(State, an_archive_of_another_optimizer_is_refused_by_its_name) {
  expect_only_own_archives<SGD>("SGD", SGDOptions(0.1));
  expect_only_own_archives<AdamW>("Adam or AdamW", AdamWOptions());
  expect_only_own_archives<Adagrad>("Adagrad", AdagradOptions());
  expect_only_own_archives<RMSprop>("RMSprop", RMSpropOptions());
  expect_only_own_archives<Lion>("Lion", LionOptions());
  expect_only_own_archives<Muon>("Muon", MuonOptions());
  expect_only_own_archives<TAM>("TAM, AdaTAM or AdaTAMW", TAMOptions(0.1));
}

TEST(State, what_is_no_archive_of_an_optimizer_is_named_without_an_assertion) {
  Tensors params = make_three_params();
  AdamW optimizer(params, AdamWOptions(1e-3));
  const auto said = [&](const std::string& archive) {
    std::istringstream stream(archive);
    return hone::test::refusal([&] { torch::load(optimizer, stream); }, ErrorCategory::CorruptFile);
  };
  std::ostringstream tensors;
  torch::save(params, tensors);
  EXPECT_THAT(said(tensors.str()), HasSubstr("one without param_groups"));
  // LibTorch asserts the version that it writes.
  torch::serialize::OutputArchive archive, state(archive.compilation_unit()),
      groups(archive.compilation_unit()), group(archive.compilation_unit()),
      options(archive.compilation_unit());
  AdamWOptions(1e-3).serialize(options);
  group.write("options", options);
  groups.write("param_groups/0", group);
  archive.write("pytorch_version", c10::IValue("1.4.0"));
  archive.write("state", state);
  archive.write("param_groups", groups);
  std::ostringstream older;
  archive.save_to(older);
  const std::string why = said(older.str());
  EXPECT_THAT(why, HasSubstr("lacks a value or is of another version"));
  EXPECT_THAT(why, Not(HasSubstr("ASSERT")));
}

TEST(State, a_second_moment_that_an_archive_lacks_is_not_taken_for_zero) {
  const std::string archive = archive_of<TAM>(TAMOptions(0.1));
  AdaTAM optimizer(make_matrices(), AdaTAMOptions(1e-4));
  std::istringstream stream(archive);
  EXPECT_THAT(error_of([&] { torch::load(optimizer, stream); }),
              HasSubstr("exp_avg_sq of parameter 0, got none"));
  EXPECT_TRUE(optimizer.export_state().empty());
}

TEST(Optimizer, parameters_without_gradient_are_left_alone) {
  Tensors params = make_three_params();
  AdamW optimizer(params, AdamWOptions(1e-2).weight_decay(0.5));
  set_normal_gradients(params, 500);
  params[1].mutable_grad() = torch::Tensor();
  const Tensors before = copies(params);
  optimizer.step();
  EXPECT_TRUE(params[1].equal(before[1]));
  EXPECT_FALSE(params[0].equal(before[0]));
  EXPECT_EQ(optimizer.plan().size(), 2u);
  EXPECT_EQ(optimizer.plan()[1].parameter, 2);
}

TEST(Optimizer, closures_run_with_gradients_and_zero_grad_works) {
  torch::Tensor x = torch::full({4}, 2.0f).requires_grad_();
  AdamW optimizer({x}, AdamWOptions(0.1));
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    torch::Tensor value = (x * x).sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(loss.item<float>(), 16);
  EXPECT_LT(x[0].item<float>(), 2);
  optimizer.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Optimizer, gradients_freed_every_step_train_on) {
  Tensors kept = make_three_params(), freed = make_three_params();
  AdamW a(kept, AdamWOptions(1e-2)), b(freed, AdamWOptions(1e-2));
  std::vector<torch::Tensor> ballast;
  for (int t = 0; t < 10; ++t) {
    torch::manual_seed(t);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const torch::Tensor grad = torch::randn(kept[i].sizes());
      if (!kept[i].grad().defined()) kept[i].mutable_grad() = torch::zeros_like(kept[i]);
      kept[i].mutable_grad().copy_(grad);
      ballast.push_back(torch::empty({1000 + t}));  // gradients land elsewhere each time
      freed[i].mutable_grad() = grad.clone();
    }
    a.step();
    b.step();
    b.zero_grad(true);
  }
  EXPECT_TRUE(equal(kept, freed));
}

TEST(Optimizer, gradients_that_move_and_change_type_are_read_as_what_they_are) {
  Tensors params = make_three_params(), plain = make_three_params();
  const auto options = SGDOptions(0.5).momentum(0.9);
  SGD optimizer(params, options), reference(plain, options);
  for (int t = 0; t < 8; ++t) {
    torch::manual_seed(t);
    for (std::size_t i = 0; i < params.size(); ++i) {
      const torch::Tensor narrow = torch::randn(params[i].sizes()).to(torch::kBFloat16);
      plain[i].mutable_grad() = narrow.to(torch::kFloat);
      params[i].mutable_grad() = t % 4 < 2 ? narrow.clone() : narrow.to(torch::kFloat);
    }
    optimizer.step();
    reference.step();
  }
  EXPECT_TRUE(equal(params, plain));
}

TEST(Optimizer, a_gradient_that_moves_onto_a_parameter_is_refused_and_nothing_changes) {
  Tensors params{torch::ones({100}).requires_grad_(), torch::ones({100}).requires_grad_()};
  SGD optimizer(params, SGDOptions(1.0).momentum(0.9));
  set_normal_gradients(params, 500);
  optimizer.step();
  const Tensors before = copies(params);
  const auto momentum = [&] { return optimizer.export_state()[1].value.clone(); };
  const torch::Tensor momentum_before = momentum();
  params[0].mutable_grad() = torch::ones({100});
  params[1].mutable_grad() = params[0].detach();
  EXPECT_THROW(optimizer.step(), Error);
  EXPECT_THROW(optimizer.step(), Error) << "and again";
  EXPECT_TRUE(equal(params, before));
  EXPECT_TRUE(momentum().equal(momentum_before));
  params[1].mutable_grad() = torch::ones({100});
  optimizer.step();
  EXPECT_FALSE(params[1].equal(before[1]));
}

TEST(Optimizer, replaced_parameter_memory_is_noticed) {
  Tensors params{torch::ones({100}).requires_grad_()};
  SGD optimizer(params, SGDOptions(1.0));
  params[0].mutable_grad() = torch::ones({100});
  optimizer.step();
  EXPECT_EQ(params[0][3].item<float>(), 0);
  params[0].set_data(torch::full({100}, 5.0f));
  optimizer.step();
  EXPECT_EQ(params[0][3].item<float>(), 4);
  params[0].set_data(torch::full({30}, 5.0f));
  params[0].mutable_grad() = torch::full({30}, 2.0f);
  optimizer.step();
  EXPECT_EQ(params[0][29].item<float>(), 3);
}

TEST(Optimizer, a_changed_set_of_gradients_is_noticed) {
  for (const bool strided : {false, true}) {
    Tensors params = make_three_params();
    SGD optimizer(params, SGDOptions(1.0).momentum(0.9));
    set_normal_gradients(params, 500);
    if (strided) params[0].mutable_grad() = torch::empty_strided({40, 17}, {1, 40}).normal_();
    optimizer.step();
    optimizer.step();
    optimizer.zero_grad();
    const Tensors before = copies(params);
    optimizer.step();  // nothing has a gradient
    EXPECT_TRUE(equal(params, before));
    params[2].mutable_grad() = torch::ones({5});
    optimizer.step();
    EXPECT_TRUE(params[0].equal(before[0]));
    EXPECT_FALSE(params[2].equal(before[2]));
    EXPECT_EQ(optimizer.export_state()[4].value.item<std::int64_t>(), 3);  // step of parameter 2
  }
}

TEST(Optimizer, state_replaced_between_steps_is_used) {
  Tensors params{torch::zeros({100}).requires_grad_()};
  SGD optimizer(params, SGDOptions(1.0).momentum(0.5));
  params[0].mutable_grad() = torch::ones({100});
  optimizer.step();
  std::vector<NamedState> state = optimizer.export_state();
  state[1].value = torch::full({100}, 8.0f);
  optimizer.import_state(state);
  optimizer.step();  // m = 0.5 * 8 + 1
  EXPECT_EQ(params[0][7].item<float>(), -1 - 5);
}

TEST(Optimizer, groups_inherit_what_they_leave_unset) {
  Tensors params = make_three_params();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{params[0]});
  groups.emplace_back(Tensors{params[1]},
                      std::make_unique<TAMOptions>(TAMOptions(0.3).weight_decay(0.25)));
  TAM optimizer(groups, TAMOptions(0.1).momentum(0.5).decay_rate(0.8));
  optimizer.add_param_group({Tensors{params[2]}, std::make_unique<TAMOptions>(0.7)});
  const auto options = [&](std::size_t g) -> const TAMOptions& {
    return static_cast<const TAMOptions&>(optimizer.param_groups()[g].options());
  };
  EXPECT_EQ(options(0).lr(), 0.1);
  EXPECT_EQ(options(1).lr(), 0.3);
  EXPECT_EQ(options(1).weight_decay(), 0.25);
  EXPECT_EQ(options(1).momentum(), 0.5);
  EXPECT_EQ(options(2).lr(), 0.7);
  EXPECT_EQ(options(2).decay_rate(), 0.8);
  EXPECT_THAT(error_of([&] { optimizer.add_param_group({Tensors{params[0]}}); }),
              HasSubstr("listed once"));
}

TEST(Optimizer, found_inf_skips_and_names_the_parameter) {
  for (const Implementation way : {Implementation::Fused, Implementation::ForLoop}) {
    Tensors params = make_three_params();
    SGD optimizer(params, SGDOptions(0.1).momentum(0.9).implementation(way));
    set_normal_gradients(params, 500);
    params[1].mutable_grad() = torch::Tensor();
    params[2].mutable_grad()[4] = std::numeric_limits<float>::infinity();
    const Tensors before = copies(params);
    const StepReport report = optimizer.step_with({.skip_nonfinite = true});
    EXPECT_FALSE(report.stepped);
    EXPECT_EQ(report.first_nonfinite_tensor, 2);
    EXPECT_TRUE(equal(params, before));
    EXPECT_EQ(optimizer.stats().skipped_steps, 1);
    // The next good step is still the first one.
    set_normal_gradients(params, 500);
    optimizer.step();
    EXPECT_EQ(optimizer.export_state()[0].value.item<std::int64_t>(), 1);
  }
}

TEST(Optimizer, tam_reports_correlation_and_a_checked_step_protects) {
  Tensors params = make_three_params();
  TAM optimizer(params, TAMOptions(1e39).use_inplace_ops(false));
  set_normal_gradients(params, 500);
  const Tensors before = copies(params);
  EXPECT_FALSE(optimizer.step_with({}).stepped);
  EXPECT_TRUE(equal(params, before));
  optimizer.param_groups()[0].options().set_lr(0.01);
  for (int t = 0; t < 5; ++t) optimizer.step();  // the same gradient: s rises
  EXPECT_NEAR(optimizer.stats().correlation, 1 - std::pow(0.9, 4), 1e-6);
  EXPECT_NEAR(optimizer.stats().damping, (2 - std::pow(0.9, 4)) / 2, 1e-6);
  EXPECT_EQ(optimizer.stats().steps, 5);
  EXPECT_EQ(optimizer.plan()[0].method, "manual");
}

TEST(Optimizer, tam_reports_the_damping_that_it_used_in_every_implementation) {
  for (const Implementation way :
       {Implementation::ForLoop, Implementation::Foreach, Implementation::Fused}) {
    Tensors params = make_three_params();
    const auto options = TAMOptions(0.01).implementation(way);
    TAM free(params, options), fixed(params, TAMOptions(options).fixed_damping(0.3));
    for (int t = 0; t < 5; ++t) {
      set_normal_gradients(params, 500);
      free.step();
      fixed.step();
    }
    EXPECT_NEAR(free.stats().correlation, 1 - std::pow(0.9, 4), 1e-6);
    EXPECT_NEAR(free.stats().damping, (2 - std::pow(0.9, 4)) / 2, 1e-6);
    EXPECT_DOUBLE_EQ(fixed.stats().damping, 0.3);
    EXPECT_NEAR(suggest_lr(0.3, fixed.stats()), 1, 1e-12);
  }
}

TEST(Optimizer, tam_of_the_whole_model_reports_the_correlation_that_it_keeps) {
  Tensors params = make_three_params();
  TAM optimizer(params, TAMOptions(0.01).scope(TAMScope::Model));
  for (int t = 0; t < 40; ++t) {
    set_normal_gradients(params, 500 + t);
    optimizer.step();
    const NamedState kept = optimizer.export_state()[2];
    ASSERT_EQ(kept.name, "correlation");
    EXPECT_EQ(optimizer.stats().correlation, kept.value.item<double>()) << t;
  }
}

TEST(Hostile, what_cannot_be_stepped_is_named) {
  const auto with_grad = [](const torch::Tensor& param, const torch::Tensor& grad) {
    torch::Tensor good = torch::ones({4}).requires_grad_(), bad = param;
    good.mutable_grad() = torch::ones({4});
    AdamW optimizer({good, bad}, AdamWOptions(0.1));
    bad.mutable_grad() = grad;
    const std::string message = error_of([&] { optimizer.step(); });
    EXPECT_EQ(good[0].item<float>(), 1);
    EXPECT_TRUE(optimizer.export_state().empty());
    return message;
  };
  EXPECT_THAT(with_grad(torch::ones({4}).requires_grad_(), torch::ones({4}).to_sparse()),
              HasSubstr("dense gradient of parameter 1"));
  const auto refused = [](const torch::Tensor& param) {
    return error_of([&] { AdamW({param}, AdamWOptions(0.1)); });
  };
  EXPECT_THAT(refused(torch::ones({4}, at::kComplexFloat).requires_grad_()),
              HasSubstr("real parameter 0"));
  EXPECT_THAT(refused(torch::ones({4}, at::kDouble).requires_grad_()),
              HasSubstr("fp32 or bf16 in parameter 0, got Double"));
  EXPECT_THAT(refused(torch::Tensor()), HasSubstr("parameter 0"));
}

TEST(Hostile, constructors_refuse_settings_without_meaning) {
  Tensors params = make_three_params();
  EXPECT_THAT(error_of([&] { AdamW(params, AdamWOptions(-1)); }), HasSubstr("[AdamW] expected lr"));
  EXPECT_THAT(error_of([&] { AdamW(params, AdamWOptions(NAN)); }),
              HasSubstr("[AdamW] expected lr"));
  EXPECT_THAT(error_of([&] {
                AdamW(params, AdamWOptions(1).betas({1, 0.9}));
              }),
              HasSubstr("beta1"));
  EXPECT_THAT(
      error_of([&] { SGD(params, SGDOptions(1).momentum(0.9).dampening(0.1).nesterov(true)); }),
      HasSubstr("nesterov"));
  EXPECT_THAT(error_of([&] { TAM(params, TAMOptions(1).decay_rate(1)); }), HasSubstr("decay_rate"));
  EXPECT_THAT(
      error_of([&] {
        TAM(params,
            TAMOptions(1).scope(TAMScope::Model).correlation_method(CorrelationMethod::Manual));
      }),
      HasSubstr("scope model, got manual, of scope tensor"));
  EXPECT_THAT(error_of([&] {
                TAM(Tensors{params[0], params[0]}, TAMOptions(1));
              }),
              HasSubstr("listed once"));
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{params[0]}, std::make_unique<TAMOptions>(0.1));
  EXPECT_THAT(error_of([&] { AdamW(groups, AdamWOptions(0.1)); }), HasSubstr("AdamWOptions"));
}

TEST(Hostile, settings_spoilt_later_are_caught_before_anything_changes) {
  Tensors params = make_three_params();
  TAM optimizer(params, TAMOptions(0.1));
  set_normal_gradients(params, 500);
  optimizer.param_groups()[0].options().set_lr(std::numeric_limits<double>::quiet_NaN());
  const Tensors before = copies(params);
  EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("lr"));
  EXPECT_TRUE(equal(params, before));
}

TEST(Interop, executor_runs_every_chunk_once_on_libtorchs_threads) {
  Executor& executor = libtorch_executor();
  const int workers = executor.workers();
  for (const Index n : {0, 1, 5, 1000}) {
    for (const Index grain : {1, 7}) {
      std::vector<int> seen(static_cast<std::size_t>(n), 0);
      executor.parallel_for(n, grain, [&](Index begin, Index end, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, workers);
        EXPECT_EQ(begin % grain, 0);
        for (Index i = begin; i < end; ++i) ++seen[i];
      });
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), n);
    }
  }
  EXPECT_THROW(
      executor.parallel_for(10, 1, [](Index, Index, int) { throw Error(ErrorCategory::Io, "x"); }),
      Error);
}

TEST(Interop, views_have_the_tensors_geometry) {
  const torch::Tensor tensor = torch::rand({3, 4}).t();
  const TensorView view = view_of(tensor, "test");
  EXPECT_EQ(view.shape, (Shape{4, 3}));
  EXPECT_EQ(view.strides, (Shape{1, 4}));
  EXPECT_EQ(view.data, tensor.data_ptr());
  EXPECT_EQ(view_of(torch::zeros({2}, at::kBFloat16), "test").dtype, Dtype::BFloat16);
  EXPECT_THAT(error_of([&] { view_of(torch::zeros({2}, at::kComplexFloat), "x"); }),
              HasSubstr("[x]"));
}

}  // namespace
}  // namespace hone::optim
