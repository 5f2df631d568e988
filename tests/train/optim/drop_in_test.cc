// SPDX-License-Identifier: Apache-2.0
// What a program that used torch::optim relies on without thinking of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <type_traits>

#include "hone/core/error.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/averaged_weights.h"
#include "hone/train/optim/lion.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"

namespace hone::optim {
namespace {

using hone::test::error_of;
using Tensors = std::vector<torch::Tensor>;
using Group = torch::optim::OptimizerParamGroup;
using testing::HasSubstr;

constexpr std::array kAllWays{Implementation::Fused, Implementation::Foreach,
                              Implementation::ForLoop};

torch::Tensor parameter(at::IntArrayRef sizes, double value = 1) {
  return torch::full(sizes, value, torch::kFloat).requires_grad_();
}

// Backward through a graph whose saved parameters were stepped since must not pass in silence.
TEST(DropIn, autograd_sees_that_a_step_wrote_to_parameters_and_gradients) {
  for (const bool tracked : {false, true}) {  // before and after the plan is known
    torch::Tensor w = parameter({3}), b = parameter({3});
    AdamW optimizer({w, b}, AdamWOptions(0.1));
    for (int step = 0; step < (tracked ? 3 : 0); ++step) {
      w.mutable_grad() = torch::ones({3});
      optimizer.step();
      optimizer.zero_grad();
    }
    const torch::Tensor loss = (w * w).sum();
    loss.backward({}, /*retain_graph=*/true);
    const auto idle = b._version();
    optimizer.step();
    EXPECT_EQ(b._version(), idle) << "no gradient, no step";
    EXPECT_THROW(loss.backward(), c10::Error);
    w.mutable_grad() = torch::ones({3});
    const auto version = w.grad()._version();
    optimizer.step_with({.grad = GradWriteBack::Zero});
    EXPECT_GT(w.grad()._version(), version);
  }
}

TEST(DropIn, a_lazily_negated_gradient_is_refused_not_taken_for_its_memory) {
  torch::Tensor p = parameter({6});
  SGD optimizer({p}, SGDOptions(1));
  p.mutable_grad() = torch::ones({6});
  optimizer.step();
  p.mutable_grad() = torch::imag(torch::conj(torch::complex(torch::ones({6}), torch::ones({6}))));
  ASSERT_TRUE(p.grad().is_neg());
  EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("resolve_neg"));
  EXPECT_EQ(p[0].item<float>(), 0);
}

template <class Own, class Theirs, class OwnOptions, class TheirOptions>
void check_huge_gradients(const OwnOptions& own, const TheirOptions& theirs) {
  for (const double size : {1e18, 1e19, 1e20, 3e20, 1e25, 1e38}) {
    torch::Tensor p = parameter({70}), q = parameter({70});
    Own a({p}, own);
    Theirs b({q}, theirs);
    for (int step = 0; step < 3; ++step) {
      p.mutable_grad() = torch::full({70}, size);
      q.mutable_grad() = torch::full({70}, size);
      a.step();
      b.step();
    }
    EXPECT_TRUE(torch::allclose(p, q, 1e-6, 1e-6))
        << size << ": " << p[0].item<float>() << ", " << q[0].item<float>();
  }
}

// The square of a gradient from 1.8e19 on is beyond fp32; its average need not be.
TEST(DropIn, huge_finite_gradients_step_as_libtorchs_do) {
  check_huge_gradients<Adam, torch::optim::Adam>(AdamOptions(0.01),
                                                 torch::optim::AdamOptions(0.01));
  check_huge_gradients<AdamW, torch::optim::AdamW>(AdamWOptions(0.01).amsgrad(true),
                                                   torch::optim::AdamWOptions(0.01).amsgrad(true));
  check_huge_gradients<Adagrad, torch::optim::Adagrad>(AdagradOptions(0.01),
                                                       torch::optim::AdagradOptions(0.01));
  check_huge_gradients<RMSprop, torch::optim::RMSprop>(RMSpropOptions(0.01),
                                                       torch::optim::RMSpropOptions(0.01));
  torch::Tensor p = parameter({70});
  AdaTAMW tam({p}, AdaTAMWOptions(0.01));
  for (int step = 0; step < 3; ++step) {
    p.mutable_grad() = torch::full({70}, 1e25);
    tam.step();
  }
  EXPECT_TRUE(p.isfinite().all().item<bool>());
}

TEST(DropIn, optimizers_move) {
  static_assert(std::is_move_constructible_v<AdamW> && std::is_move_constructible_v<TAM> &&
                std::is_move_constructible_v<Muon>);
  torch::Tensor p = parameter({4}), q = parameter({4});
  const auto make = [](torch::Tensor param) {
    AdamW optimizer({param}, AdamWOptions(0.1));
    param.mutable_grad() = torch::ones({4});
    optimizer.step();
    return AdamW(std::move(optimizer));
  };
  AdamW moved = make(p);
  AdamW plain({q}, AdamWOptions(0.1));
  for (int step = 0; step < 2; ++step) {
    q.mutable_grad() = torch::ones({4});
    plain.step();
  }
  moved.step();
  EXPECT_TRUE(p.equal(q));
}

TEST(DropIn, groups_may_be_empty) {
  torch::Tensor p = parameter({4}), q = parameter({4});
  AdamW optimizer(std::vector<Group>{Group({p}), Group(Tensors{})}, AdamWOptions(0.1));
  torch::optim::AdamW theirs(std::vector<Group>{Group({q}), Group(Tensors{})},
                             torch::optim::AdamWOptions(0.1));
  for (torch::Tensor* param : {&p, &q}) param->mutable_grad() = torch::ones({4});
  optimizer.step();
  theirs.step();
  EXPECT_TRUE(torch::allclose(p, q));
  TAM nothing(Tensors{}, TAMOptions(1));
  nothing.step();
}

TEST(DropIn, a_group_that_makes_no_sense_is_not_added) {
  torch::Tensor w = parameter({4, 4}), bias = parameter({4});
  Muon muon({w}, MuonOptions(0.1));
  EXPECT_THAT(error_of([&] { muon.add_param_group(Group({bias})); }), HasSubstr("a matrix"));
  AdamW adam({w}, AdamWOptions(0.1));
  const auto with = [&](const AdamWOptions& options) {
    return error_of(
        [&] { adam.add_param_group(Group({bias}, std::make_unique<AdamWOptions>(options))); });
  };
  EXPECT_THAT(with(AdamWOptions(NAN)), HasSubstr("lr"));
  EXPECT_THAT(with(AdamWOptions(1).betas({1.5, 0.9})), HasSubstr("beta1"));
  EXPECT_THAT(with(AdamWOptions(1).implementation(Implementation::Foreach)),
              HasSubstr("the same implementation"));
  EXPECT_EQ(muon.param_groups().size(), 1u);
  EXPECT_EQ(adam.param_groups().size(), 1u);
  w.mutable_grad() = torch::ones({4, 4});
  adam.step();
  muon.step();
  EXPECT_THAT(error_of([&] { Adagrad({w}, AdagradOptions(1).initial_accumulator_value(-0.1)); }),
              HasSubstr("initial_accumulator_value"));
  EXPECT_THAT(error_of([&] {
                Muon({w}, MuonOptions(1).ns_coefficients({NAN, 0, 0}));
              }),
              HasSubstr("ns_coefficients"));
}

TEST(DropIn, what_no_step_could_take_is_refused_at_construction) {
  torch::Tensor w = parameter({4, 4}), bias = parameter({4});
  const torch::Tensor expanded = torch::zeros({1}).expand({5}).set_requires_grad(true);
  EXPECT_THAT(error_of([&] { AdamW({expanded}, AdamWOptions(0.1)); }), HasSubstr("expanded view"));
  const auto model = [] {
    return std::make_unique<TAMOptions>(TAMOptions(0.1).scope(TAMScope::Model));
  };
  const auto mixed = HasSubstr("scope Model for all groups or none");
  EXPECT_THAT(error_of([&] { TAM({Group({w}), Group({bias}, model())}, TAMOptions(0.1)); }), mixed);
  TAM tam({w}, TAMOptions(0.1));
  EXPECT_THAT(error_of([&] { tam.add_param_group(Group({bias}, model())); }), mixed);
  EXPECT_EQ(tam.param_groups().size(), 1u);
}

TEST(DropIn, a_saved_scope_replaces_that_of_the_optimizer_that_loads) {
  for (const bool to_model : {true, false}) {
    torch::Tensor w = parameter({4, 4}), other = parameter({4, 4});
    TAM from({w}, to_model ? TAMOptions(0.1).scope(TAMScope::Model) : TAMOptions(0.1));
    TAM into({other}, to_model ? TAMOptions(0.1) : TAMOptions(0.1).scope(TAMScope::Model));
    w.mutable_grad() = torch::ones({4, 4});
    from.step();
    into.import_all(from.param_groups_json(), from.export_state());
    other.mutable_grad() = torch::ones({4, 4});
    from.step();
    into.step();
    EXPECT_EQ(into.stats().correlation, from.stats().correlation) << to_model;
  }
}

// The plan of the step before must not be used for what looks the same by address.
TEST(DropIn, memory_that_stays_while_its_meaning_changes_is_seen) {
  constexpr Index kSize = 86;
  const auto stepped = [](torch::Tensor& w) {
    auto optimizer = std::make_unique<SGD>(std::vector{w}, SGDOptions(1).momentum(0.5));
    for (int step = 0; step < 3; ++step) {
      w.mutable_grad() = torch::ones_like(w);
      optimizer->step();
    }
    return optimizer;
  };
  torch::Tensor w = parameter({kSize});
  auto optimizer = stepped(w);
  auto& state = static_cast<SGDParamState&>(*optimizer->state().at(w.unsafeGetTensorImpl()));
  const auto value = state.momentum_buffer()[0].item<float>();
  state.momentum_buffer(torch::Tensor());
  state.momentum_buffer(torch::full({kSize}, value, torch::kBFloat16));
  optimizer->step();
  EXPECT_EQ(state.momentum_buffer().scalar_type(), at::kFloat);
  EXPECT_EQ(state.momentum_buffer()[kSize - 1].item<float>(), 0.5f * value + 1);

  torch::Tensor negated = parameter({kSize});
  optimizer = stepped(negated);
  negated.set_data(at::_neg_view(negated.detach()));
  EXPECT_THAT(error_of([&] { optimizer->step(); }), HasSubstr("resolve_neg"));

  torch::Tensor turned = parameter({4, 4});
  optimizer = stepped(turned);
  turned.set_data(turned.detach().view({2, 8}));
  turned.mutable_grad() = torch::ones({2, 8});
  EXPECT_THAT(error_of([&] { optimizer->step(); }), HasSubstr("shape of its state"));

  torch::Tensor copied = parameter({kSize});
  optimizer = stepped(copied);
  const torch::Tensor snapshot = at::_lazy_clone(copied.detach());
  const auto before = snapshot[0].item<float>();
  optimizer->step();
  EXPECT_EQ(snapshot[0].item<float>(), before);
  EXPECT_LT(copied[0].item<float>(), before);
}

TEST(DropIn, state_of_another_class_is_refused) {
  torch::Tensor p = parameter({4}), q = parameter({4});
  AdamW own({p}, AdamWOptions(0.1));
  torch::optim::AdamW theirs({q}, torch::optim::AdamWOptions(0.1));
  for (torch::Tensor* param : {&p, &q}) param->mutable_grad() = torch::ones({4});
  theirs.step();
  own.state()[p.unsafeGetTensorImpl()] = theirs.state()[q.unsafeGetTensorImpl()]->clone();
  EXPECT_THAT(error_of([&] { own.step(); }), HasSubstr("import_state"));
  EXPECT_EQ(p[0].item<float>(), 1);
}

TEST(DropIn, momentum_that_is_switched_on_for_one_group_starts_there) {
  for (const Implementation way : kAllWays) {
    torch::Tensor p[2] = {parameter({9}), parameter({9})};
    torch::Tensor q[2] = {parameter({9}), parameter({9})};
    const auto own = [&](double momentum) {
      return SGDOptions(0.1).momentum(momentum).implementation(way);
    };
    std::vector<Group> a, b;
    a.emplace_back(Tensors{p[0]}, std::make_unique<SGDOptions>(own(0.9)));
    a.emplace_back(Tensors{p[1]}, std::make_unique<SGDOptions>(own(0)));
    using TheirOptions = torch::optim::SGDOptions;
    b.emplace_back(Tensors{q[0]}, std::make_unique<TheirOptions>(TheirOptions(0.1).momentum(0.9)));
    b.emplace_back(Tensors{q[1]}, std::make_unique<TheirOptions>(0.1));
    SGD mine(a, own(0));
    torch::optim::SGD theirs(b, TheirOptions(0.1));
    for (const double momentum : {0.0, 0.8, 0.0, 0.7}) {
      static_cast<SGDOptions&>(mine.param_groups()[1].options()).momentum(momentum);
      static_cast<TheirOptions&>(theirs.param_groups()[1].options()).momentum(momentum);
      for (int step = 0; step < 3; ++step) {
        for (int i = 0; i < 2; ++i) {
          const torch::Tensor grad = torch::randn({9});
          p[i].mutable_grad() = grad;
          q[i].mutable_grad() = grad;
        }
        mine.step();
        theirs.step();
      }
    }
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::allclose(p[i], q[i], 1e-5, 1e-6)) << i;
  }
}

TEST(DropIn, a_parameter_may_change_its_memory_format) {
  torch::Tensor p = torch::ones({2, 3, 4, 4}).requires_grad_();
  torch::Tensor q = torch::ones({2, 3, 4, 4}).requires_grad_();
  AdamW own({p}, AdamWOptions(0.1));
  torch::optim::AdamW theirs({q}, torch::optim::AdamWOptions(0.1));
  for (int step = 0; step < 4; ++step) {
    const torch::Tensor grad = torch::randn({2, 3, 4, 4});
    for (torch::Tensor* param : {&p, &q}) {
      if (step == 2) {
        param->set_data(param->detach().contiguous(at::MemoryFormat::ChannelsLast));
      }
      param->mutable_grad() = step < 2 ? grad.clone() : grad.clone(at::MemoryFormat::ChannelsLast);
    }
    own.step();
    theirs.step();
  }
  EXPECT_TRUE(torch::allclose(p, q, 1e-5, 1e-6));
}

// Convolutions of 1 x 1 give gradients of such strides where channels are last.
TEST(DropIn, dimensions_of_size_one_may_have_any_stride) {
  const std::vector<std::int64_t> sizes = {64, 16, 1, 1};
  torch::Tensor p = torch::ones(sizes).requires_grad_(), q = torch::ones(sizes).requires_grad_();
  AdamW own({p}, AdamWOptions(0.01).state_dtype(StateDtype::BFloat16));
  AdamW plain({q}, AdamWOptions(0.01).state_dtype(StateDtype::BFloat16));
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor grad = torch::randn(sizes);
    p.mutable_grad() = grad.clone().as_strided(sizes, {16, 1, 16, 16});
    q.mutable_grad() = grad.clone();
    ASSERT_NE(p.grad().strides(), p.strides());
    EXPECT_EQ(own.plan()[0].kernel, "fused");
    EXPECT_EQ(own.plan()[0].state_dtype, StateDtype::BFloat16);
    own.step();
    plain.step();
  }
  EXPECT_TRUE(p.equal(q));
}

// State in fewer bits follows too: as fp32 where gradients and parameter differ in layout.
TEST(DropIn, narrow_state_and_averages_follow_a_change_of_memory_format) {
  for (const StateDtype dtype : {StateDtype::Float32, StateDtype::BFloat16, StateDtype::Block8}) {
    for (const bool same_layout : {false, true}) {
      const std::vector<std::int64_t> sizes = {64, 16, 3, 3};
      torch::Tensor p = torch::ones(sizes).requires_grad_(),
                    q = torch::ones(sizes).requires_grad_();
      AdamW moved({p}, AdamWOptions(0.01).state_dtype(dtype));
      AdamW plain({q}, AdamWOptions(0.01).state_dtype(dtype));
      for (int step = 0; step < 5; ++step) {
        torch::manual_seed(step);
        const torch::Tensor grad = torch::randn(sizes);
        const bool switched = step >= 2;
        if (step == 2) p.set_data(p.detach().contiguous(at::MemoryFormat::ChannelsLast));
        p.mutable_grad() =
            switched && same_layout ? grad.clone(at::MemoryFormat::ChannelsLast) : grad.clone();
        q.mutable_grad() = grad.clone();
        moved.step_with({.ema_decay = 0.9});
        plain.step_with({.ema_decay = 0.9});
      }
      const double bound = dtype == StateDtype::Float32 ? 1e-6 : 0.01;
      EXPECT_LT((p - q).abs().max().item<double>(), bound);
      EXPECT_LT((moved.averages()[0] - plain.averages()[0]).abs().max().item<double>(), bound);
    }
  }
}

TEST(DropIn, a_moved_from_optimizer_says_so) {
  torch::Tensor p = parameter({4});
  p.mutable_grad() = torch::ones({4});
  AdamW optimizer({p}, AdamWOptions(0.1));
  optimizer.step();
  const AdamW moved(std::move(optimizer));
  EXPECT_THAT(error_of([&] { optimizer.step(); }), HasSubstr("moved from"));
  EXPECT_THAT(error_of([&] { optimizer.plan(); }), HasSubstr("moved from"));
  EXPECT_THAT(error_of([&] { optimizer.add_param_group(Group({p})); }), HasSubstr("moved from"));
}

// An element whose second moment is infinite holds its block still, as it holds itself still in
// fp32; nothing becomes NaN.
TEST(DropIn, huge_finite_gradients_leave_8_bit_state_without_nan) {
  for (const double size : {1e19, 1e20, 1e25}) {
    for (const bool all : {false, true}) {
      std::vector<torch::Tensor> params;
      for (int i = 0; i < 4; ++i) params.push_back(parameter({8192}));
      const StateDtype b8 = StateDtype::Block8;
      Adagrad adagrad({params[0]}, AdagradOptions(0.01).state_dtype(b8));
      AdamW adamw({params[1]}, AdamWOptions(0.01).state_dtype(b8));
      AdaTAM adatam({params[2]}, AdaTAMOptions(0.01).state_dtype(b8));
      AdaTAMW adatamw({params[3]}, AdaTAMWOptions(0.01).state_dtype(b8));
      for (int step = 0; step < 5; ++step) {
        for (torch::Tensor& param : params) {
          torch::Tensor grad = torch::randn({8192});
          if (step < 2) (all ? grad : grad.slice(0, 7, 8)).fill_(size);
          param.mutable_grad() = grad;
        }
        adagrad.step(), adamw.step(), adatam.step(), adatamw.step();
      }
      for (const torch::Tensor& param : params) {
        EXPECT_TRUE(param.isfinite().all().item<bool>()) << size << ' ' << all;
      }
    }
  }
}

TEST(DropIn, what_cannot_step_changes_nothing_in_any_implementation) {
  for (const Implementation way : kAllWays) {
    torch::Tensor p = parameter({8}), q = parameter({8});
    SGD optimizer({p, q}, SGDOptions(0.1).momentum(0.9).implementation(way));
    const auto refused = [&](const std::function<void()>& step) {
      const std::string error = error_of(step);
      EXPECT_EQ(p[0].item<float>(), 1) << error;
      EXPECT_TRUE(optimizer.export_state().empty()) << error;
      return error;
    };
    p.mutable_grad() = torch::ones({8});
    q.mutable_grad() = torch::ones({8});
    for (const double bad : {0.0, -1.0, std::nan("")}) {
      EXPECT_THAT(refused([&] { optimizer.step_with({.inv_scale = bad}); }),
                  HasSubstr("inv_scale"));
    }
    EXPECT_THAT(refused([&] { optimizer.step_with({.clip_norm = -1}); }), HasSubstr("clip_norm"));
    EXPECT_THAT(refused([&] { optimizer.step_with({.ema_decay = 1.5}); }), HasSubstr("ema_decay"));
    optimizer.param_groups()[0].options().set_lr(-1);
    EXPECT_THAT(refused([&] { optimizer.step(); }), HasSubstr("lr"));
    optimizer.param_groups()[0].options().set_lr(0.1);
    q.mutable_grad() = p.grad();
    EXPECT_NE(refused([&] { optimizer.step_with({.grad = GradWriteBack::Unscaled}); }), "no error");
    q.mutable_grad() = torch::ones({8});
    q.mutable_grad()[3] = INFINITY;
    refused([&] { optimizer.step_with({.skip_nonfinite = true}); });
  }
}

TEST(DropIn, gradients_of_16_bits_step_fp32_parameters_in_every_implementation) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    std::vector<torch::Tensor> results;
    for (const Implementation way : kAllWays) {
      torch::Tensor p = parameter({40});
      AdamW optimizer({p}, AdamWOptions(0.1).implementation(way));
      torch::manual_seed(4);
      for (int step = 0; step < 3; ++step) {
        p.mutable_grad() = torch::randn({40}).to(type);
        optimizer.step();
      }
      results.push_back(p.detach());
    }
    EXPECT_TRUE(torch::allclose(results[0], results[1], 1e-6, 1e-6));
    EXPECT_TRUE(torch::allclose(results[0], results[2], 1e-6, 1e-6));
  }
}

TEST(DropIn, state_made_in_inference_mode_can_be_stepped_outside) {
  for (const Implementation way : kAllWays) {
    torch::Tensor p = parameter({4});
    AdamW optimizer({p}, AdamWOptions(0.1).implementation(way));
    p.mutable_grad() = torch::ones({4});
    {
      const c10::InferenceMode inference;
      optimizer.step();
    }
    optimizer.step();
    EXPECT_LT(p[0].item<float>(), 0.85f);
  }
}

// After a change of scope what is saved is the s in use, and continues bit for bit.
TEST(DropIn, tam_saves_the_correlation_of_the_scope_in_use) {
  using enum TAMScope;
  for (const TAMScope from : {Row, Tensor, Model}) {
    for (const TAMScope to : {Row, Tensor, Model}) {
      torch::Tensor p = parameter({6, 5}), q = parameter({6, 5});
      TAM straight({p}, TAMOptions(0.05).scope(from));
      const auto step = [](TAM& optimizer, torch::Tensor& param, int t) {
        torch::manual_seed(70 + t);
        param.mutable_grad() = torch::randn({6, 5});
        optimizer.step();
      };
      for (int t = 0; t < 3; ++t) step(straight, p, t);
      static_cast<TAMOptions&>(straight.param_groups()[0].options()).scope(to);
      for (int t = 3; t < 6; ++t) step(straight, p, t);
      q.set_data(p.detach().clone());
      TAM resumed({q}, TAMOptions(0.05).scope(to));
      resumed.import_state(straight.export_state());
      for (int t = 6; t < 9; ++t) {
        step(straight, p, t);
        step(resumed, q, t);
      }
      EXPECT_TRUE(p.equal(q)) << static_cast<int>(from) << " to " << static_cast<int>(to);
      if (from == Row && to == Tensor) {
        TAM other({q}, TAMOptions(0.05).scope(Row));
        EXPECT_THAT(error_of([&] { other.import_state(straight.export_state()); }),
                    HasSubstr("one per row"));
      }
    }
  }
}

TEST(DropIn, the_plan_says_what_state_is_kept_in) {
  torch::Tensor p = parameter({8192});
  AdamW optimizer({p}, AdamWOptions(0.1));
  p.mutable_grad() = torch::ones({8192});
  optimizer.step();
  static_cast<AdamWOptions&>(optimizer.param_groups()[0].options()).state_dtype(StateDtype::Block8);
  optimizer.step();
  EXPECT_EQ(optimizer.plan()[0].state_dtype, StateDtype::Float32);
}

// Options that earlier versions offered, in archives and groups that they saved.
TEST(DropIn, saved_state_of_removed_options_is_refused_by_name) {
  torch::Tensor p = parameter({6, 5});
  TAM optimizer({p}, TAMOptions(0.1));
  const auto refused = [&](const Json& changed) {
    Json groups = optimizer.param_groups_json();
    groups[0].update(changed);
    return error_of([&] { optimizer.import_all(groups, {}); });
  };
  EXPECT_THAT(refused({{"lagged_cosine", true}}), HasSubstr("lagged_cosine was removed"));
  EXPECT_THAT(refused({{"scope", "element"}}), HasSubstr("scope element was removed"));
  EXPECT_EQ(refused({{"lagged_cosine", false}}), "no error") << "as every older file has it";
  p.mutable_grad() = torch::ones({6, 5});
  optimizer.step();
  std::vector<NamedState> state = optimizer.export_state();
  for (NamedState& item : state) {
    if (item.name == "correlation") item.value = torch::zeros({6, 5});
  }
  EXPECT_THAT(error_of([&] { optimizer.import_state(state); }), HasSubstr("scope element"));
  for (const auto& [key, value] : {std::pair<const char*, c10::IValue>{"lagged_cosine", true},
                                   std::pair<const char*, c10::IValue>{"scope", 3}}) {
    torch::serialize::OutputArchive out;
    TAMOptions(0.1).serialize(out);
    out.write(key, value);
    std::stringstream stream;
    out.save_to(stream);
    torch::serialize::InputArchive in;
    in.load_from(stream);
    TAMOptions loaded(0.5);
    EXPECT_THAT(error_of([&] { loaded.serialize(in); }), HasSubstr("was removed")) << key;
  }
}

TEST(DropIn, counters_and_options_that_are_loaded_are_checked) {
  torch::Tensor p = parameter({4});
  AdamW optimizer({p}, AdamWOptions(0.1));
  p.mutable_grad() = torch::ones({4});
  optimizer.step();
  std::vector<NamedState> state = optimizer.export_state();
  Json groups = optimizer.param_groups_json();
  const auto refused = [&](const char* key, const Json& value) {
    Json bad = groups;
    bad[0][key] = value;
    return error_of([&] { optimizer.import_all(bad, state); });
  };
  EXPECT_THAT(refused("lr", -0.5), HasSubstr("lr"));
  EXPECT_THAT(refused("betas", Json::array({1.5, 0.9})), HasSubstr("beta1"));
  EXPECT_THAT(refused("eps", -1), HasSubstr("eps"));
  EXPECT_THAT(refused("params", Json::array({7})), HasSubstr("params in order"));
  EXPECT_EQ(refused("lr", 0.2), "no error");
  for (NamedState& item : state) {
    if (item.name == "step") item.value = torch::full({}, std::int64_t{1} << 60, torch::kLong);
  }
  EXPECT_THAT(error_of([&] { optimizer.import_state(state); }), HasSubstr("2^53"));
}

}  // namespace
}  // namespace hone::optim
