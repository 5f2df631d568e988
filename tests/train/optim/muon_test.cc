// SPDX-License-Identifier: Apache-2.0
#include "hone/train/optim/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "hone/core/error.h"
#include "hone/core/file/json_io.h"
#include "hone/train/optim/lion.h"
#include "tests/support/peer.h"
#include "tests/train/optim/formula_values.h"

namespace hone::optim {
namespace {

using Tensors = std::vector<torch::Tensor>;
using testing::HasSubstr;

Tensors make_matrices() {
  Tensors params{values(16, 16, 0), values(8, 40, 1), values(40, 8, 2)};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

void set_matrix_gradients(Tensors& params, int step) {
  for (std::size_t k = 0; k < params.size(); ++k) {
    params[k].mutable_grad() =
        values(params[k].size(0), params[k].size(1), 100 + 10 * step + static_cast<double>(k));
  }
}

// torch.optim.Muon iterates in bf16, so do we here: what is left are orders of additions. The way
// of a parameter is about 0.5.
TEST(Muon, follows_torch_optim_muon) {
  HONE_REQUIRE_PEER("torch");
  for (const bool nesterov : {true, false}) {
    for (const bool match : {true, false}) {
      const Json theirs = Json::parse(hone::test::run_peer(
          "tests/train/optim/peer_muon.py", {"20", nesterov ? "1" : "0", match ? "1" : "0"}));
      Tensors params = make_matrices();
      Muon optimizer(params, MuonOptions(0.02).nesterov(nesterov).bf16_iteration(true).adjust_lr(
                                 match ? MuonAdjust::MatchRmsAdamW : MuonAdjust::Original));
      for (int t = 0; t < 20; ++t) {
        set_matrix_gradients(params, t);
        optimizer.step();
      }
      for (std::size_t k = 0; k < params.size(); ++k) {
        const auto wanted = theirs[k].get<std::vector<float>>();
        const torch::Tensor difference = params[k].detach().flatten() - torch::tensor(wanted);
        EXPECT_LE(difference.abs().max().item<double>(), 2e-3) << k;
      }
    }
  }
}

// Updates of a hundredth of bf16's spacing: rounded to nearest they would all be lost.
TEST(Muon, parameters_in_bf16_go_where_fp32_goes) {
  torch::manual_seed(7);
  const torch::Tensor start = torch::randn({64, 64});
  const auto way = [&](at::ScalarType type) {
    const double before = start.to(type).to(at::kDouble).square().sum().item<double>();
    torch::Tensor param = start.to(type).clone().requires_grad_();
    Muon optimizer({param}, MuonOptions(1e-3));
    for (int t = 0; t < 100; ++t) {
      param.mutable_grad() = param.detach().to(at::kFloat).mul(2).to(type);
      optimizer.step();
    }
    return before - param.detach().to(at::kDouble).square().sum().item<double>();
  };
  const double wide = way(at::kFloat);
  EXPECT_GT(wide, 100);
  EXPECT_NEAR(way(at::kBFloat16), wide, 0.1 * wide);
}

// The iteration in fp64, written out.
TEST(Muon, equals_the_iteration_in_double) {
  Tensors params = make_matrices();
  std::vector<torch::Tensor> exact, momentum;
  for (const torch::Tensor& param : params) {
    exact.push_back(param.detach().to(at::kDouble));
    momentum.push_back(at::zeros_like(exact.back()));
  }
  Muon optimizer(params, MuonOptions(0.02));
  for (int t = 0; t < 20; ++t) {
    set_matrix_gradients(params, t);
    optimizer.step_with({.inv_scale = 0.5});
    for (std::size_t k = 0; k < params.size(); ++k) {
      const torch::Tensor grad = params[k].grad().to(at::kDouble) * 0.5;
      momentum[k] = momentum[k] * 0.95 + grad * 0.05;
      torch::Tensor x = grad * 0.05 + momentum[k] * 0.95;
      x = x / x.norm();
      const bool tall = x.size(0) > x.size(1);
      if (tall) x = x.t();
      for (int s = 0; s < 5; ++s) {
        const torch::Tensor a = x.mm(x.t());
        x = x * 3.4445 + (a * -4.775 + a.mm(a) * 2.0315).mm(x);
      }
      if (tall) x = x.t();
      const double ratio = static_cast<double>(x.size(0)) / static_cast<double>(x.size(1));
      exact[k] = exact[k] * (1 - 0.02 * 0.1) - x * (0.02 * std::sqrt(std::max(1.0, ratio)));
      EXPECT_LE((params[k].detach() - exact[k]).abs().max().item<double>(), 2e-5) << k << " " << t;
    }
  }
}

TEST(Muon, orthogonalizes_roughly) {
  const torch::Tensor x = orthogonalize(at::randn({30, 50}), MuonOptions());
  const torch::Tensor singular = std::get<1>(at::svd(x));
  EXPECT_GT(singular.min().item<double>(), 0.3);
  EXPECT_LT(singular.max().item<double>(), 1.4);
}

TEST(Muon, chains_agree_with_the_kernel) {
  Tensors fused = make_matrices(), loop = make_matrices(), foreach = make_matrices();
  Muon a(fused, MuonOptions(0.02).maximize(true));
  Muon b(loop, MuonOptions(0.02).maximize(true).implementation(Implementation::ForLoop));
  Muon c(foreach, MuonOptions(0.02).maximize(true).implementation(Implementation::Foreach));
  for (int t = 0; t < 10; ++t) {
    for (Tensors* params : {&fused, &loop, &foreach}) set_matrix_gradients(*params, t);
    a.step_with({.clip_norm = 3});
    b.step_with({.clip_norm = 3});
    c.step_with({.clip_norm = 3});
  }
  for (std::size_t k = 0; k < fused.size(); ++k) {
    EXPECT_LE((fused[k] - loop[k]).abs().max().item<double>(), 1e-5);
    EXPECT_LE((fused[k] - foreach[k]).abs().max().item<double>(), 1e-5);
  }
}

TEST(Muon, a_found_inf_changes_nothing) {
  Tensors params = make_matrices();
  Muon optimizer(params, MuonOptions(0.02));
  set_matrix_gradients(params, 0);
  optimizer.step();
  const torch::Tensor before = params[1].detach().clone();
  const torch::Tensor momentum = optimizer.export_state()[3].value.clone();
  set_matrix_gradients(params, 1);
  params[2].mutable_grad()[3][4] = INFINITY;
  const StepReport report = optimizer.step_with({.skip_nonfinite = true});
  EXPECT_FALSE(report.stepped);
  EXPECT_EQ(report.first_nonfinite_tensor, 2);
  EXPECT_TRUE(params[1].equal(before));
  EXPECT_TRUE(optimizer.export_state()[3].value.equal(momentum));
}

// Two optimizers of the same parameters, with gradients by a formula; `compare` sees both lists.
template <class One, class Other>
void step_both(One& one, Other& other, Tensors& mine, Tensors& theirs, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (std::size_t k = 0; k < mine.size(); ++k) {
      const torch::Tensor grad =
          values(1, mine[k].numel(), 100 + 10 * step + static_cast<double>(k));
      mine[k].mutable_grad() = grad.reshape(mine[k].sizes()).clone();
      theirs[k].mutable_grad() = grad.reshape(theirs[k].sizes()).clone();
    }
    one.step(), other.step();
  }
}

TEST(Muon, a_group_of_signs_is_lion_with_the_momentum_as_both_betas) {
  for (const auto way : {Implementation::Fused, Implementation::Foreach, Implementation::ForLoop}) {
    Tensors mine{values(1, 70, 0).flatten().requires_grad_(), values(20, 8, 1).requires_grad_()};
    Tensors theirs{mine[0].detach().clone().requires_grad_(),
                   mine[1].detach().clone().requires_grad_()};
    Muon muon(mine, MuonOptions(0.01).momentum(0.8).sign_update(true).implementation(way));
    Lion lion(theirs, LionOptions(0.01).betas({0.8, 0.8}).weight_decay(0.1).implementation(way));
    step_both(muon, lion, mine, theirs, 4);
    for (std::size_t k = 0; k < mine.size(); ++k) EXPECT_TRUE(mine[k].equal(theirs[k])) << k;
  }
}

TEST(Muon, groups_of_both_kinds_step_as_two_optimizers_do) {
  Tensors mine{values(16, 8, 0).requires_grad_(), values(1, 30, 1).flatten().requires_grad_()};
  Tensors theirs{mine[0].detach().clone().requires_grad_(),
                 mine[1].detach().clone().requires_grad_()};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{mine[0]}, std::make_unique<MuonOptions>(0.02));
  groups.emplace_back(Tensors{mine[1]}, std::make_unique<MuonOptions>(
                                            MuonOptions(0.002).weight_decay(0).sign_update(true)));
  Muon both(groups);
  Muon alone({theirs[0]}, MuonOptions(0.02));
  Lion signs({theirs[1]}, LionOptions(0.002).betas({0.95, 0.95}));
  struct Two {
    Muon& first;
    Lion& second;
    void step() { first.step(), second.step(); }
  } two{alone, signs};
  step_both(both, two, mine, theirs, 3);
  EXPECT_TRUE(mine[0].equal(theirs[0]));
  EXPECT_TRUE(mine[1].equal(theirs[1]));
}

TEST(Muon, the_weight_of_a_convolution_is_a_matrix_of_its_outputs) {
  Tensors mine{values(12, 45, 0).reshape({12, 5, 3, 3}).requires_grad_()};
  Tensors theirs{mine[0].detach().reshape({12, 45}).clone().requires_grad_()};
  Muon convolution(mine, MuonOptions(0.02)), matrix(theirs, MuonOptions(0.02));
  step_both(convolution, matrix, mine, theirs, 3);
  EXPECT_TRUE(mine[0].reshape({12, 45}).equal(theirs[0]));
}

TEST(Muon, averages_follow_the_updated_parameter) {
  constexpr double kDecay = 0.75;
  Tensors params{values(16, 24, 0).requires_grad_()};
  Muon optimizer(params, MuonOptions(0.02));
  torch::Tensor wanted;
  for (int step = 0; step < 4; ++step) {
    set_matrix_gradients(params, step);
    const torch::Tensor before = params[0].detach().to(at::kDouble).clone();
    optimizer.step_with({.ema_decay = kDecay});
    if (step == 0) wanted = before;
    wanted = wanted * kDecay + params[0].detach().to(at::kDouble) * (1 - kDecay);
  }
  const auto& state =
      static_cast<const MuonParamState&>(*optimizer.state().at(params[0].unsafeGetTensorImpl()));
  EXPECT_LT((state.average().to(at::kDouble) - wanted).abs().max().item<double>(), 1e-6);
}

TEST(Muon, refuses_what_is_no_matrix_and_settings_without_meaning) {
  const auto error_of = [](const std::function<void()>& run) -> std::string {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  Tensors params{torch::ones({3, 4}).requires_grad_(), torch::ones({4}).requires_grad_()};
  EXPECT_THAT(error_of([&] { Muon(params, {}); }), HasSubstr("matrix as parameter 1"));
  params.pop_back();
  EXPECT_THAT(error_of([&] { Muon(params, MuonOptions(0.1).ns_steps(0)); }), HasSubstr("ns_steps"));
  EXPECT_THAT(error_of([&] { Muon(params, MuonOptions(0.1).momentum(1)); }),
              HasSubstr("momentum in [0, 1)"));
  EXPECT_THAT(error_of([&] { Muon(params, MuonOptions(NAN)); }), HasSubstr("lr"));
}

}  // namespace
}  // namespace hone::optim
