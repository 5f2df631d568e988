// SPDX-License-Identifier: Apache-2.0
// Clipping inside of the step against torch::nn::utils before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/train/optim/adam.h"
#include "hone/train/optim/muon.h"
#include "hone/train/optim/sgd.h"
#include "hone/train/optim/tam.h"
#include "tests/support/error_of.h"
#include "tests/train/optim/formula_values.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using hone::test::error_of;
using test::kBound;
using test::make_params;
using test::set_gradients;
using test::Tensors;
using test::worst_difference;
using testing::HasSubstr;

constexpr double kLargest = std::numeric_limits<double>::infinity();
constexpr Implementation kWays[] = {Implementation::Fused, Implementation::Foreach,
                                    Implementation::ForLoop};

// `clip` is torch's on the parameters of `theirs`, control ours.
template <class Ours, class Theirs, class Options, class TheirOptions, class Clip>
void follow(const Options& options, const TheirOptions& their_options, const StepControl& control,
            const Clip& clip) {
  for (const Implementation way : kWays) {
    Tensors ours = make_params(), theirs = make_params();
    Ours a(ours, Options(options).implementation(way));
    Theirs b(theirs, their_options);
    for (int t = 0; t < 10; ++t) {
      set_gradients(ours, t);
      set_gradients(theirs, t);
      const double norm = clip(theirs);
      b.step();
      const StepReport report = a.step_with(control);
      if (norm >= 0) {
        EXPECT_NEAR(report.grad_norm / norm, 1, 1e-5);
      }
    }
    EXPECT_LE(worst_difference(ours, theirs), kBound);
  }
}

TEST(ClipValue, follows_clip_grad_value) {
  const auto clip = [](const Tensors& params) {
    torch::nn::utils::clip_grad_value_(params, 0.3);
    return -1.0;
  };
  follow<SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9),
                                 torch::optim::SGDOptions(0.1).momentum(0.9), {.clip_value = 0.3},
                                 clip);
  follow<AdamW, torch::optim::AdamW>(AdamWOptions(1e-2), torch::optim::AdamWOptions(1e-2),
                                     {.clip_value = 0.3, .skip_nonfinite = true}, clip);
}

// What clip_grad_norm_ computes in fp32.
double norm_in_double(const Tensors& params, double p) {
  Tensors grads;
  for (const torch::Tensor& param : params) grads.push_back(param.grad().flatten());
  const double norm = at::norm(at::cat(grads).to(at::kDouble), p).item<double>();
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(params, 1e30, p) / norm, 1, 1e-5);
  return norm;
}

TEST(NormType, follows_clip_grad_norm) {
  for (const double p : {1.0, 2.0, 3.0, 0.5, kLargest}) {
    Tensors params = make_params();
    set_gradients(params, 0);
    const double limit = norm_in_double(params, p) / 3;
    follow<SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9),
                                   torch::optim::SGDOptions(0.1).momentum(0.9),
                                   {.clip_norm = limit, .norm_type = p}, [&](const Tensors& all) {
                                     const double norm = norm_in_double(all, p);
                                     for (const torch::Tensor& param : all) {
                                       param.grad().mul_(std::min(1.0, limit / (norm + 1e-6)));
                                     }
                                     return norm;
                                   });
  }
}

// Each way of stepping, on gradients clipped before and in the step.
template <class Optimizer, class Options>
void check_against_apart(const Options& options, Tensors (*make)()) {
  for (const Implementation way : kWays) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
      Tensors inside = make(), apart = make();
      Optimizer a(inside, Options(options).implementation(way));
      Optimizer b(apart, Options(options).implementation(way));
      for (int t = 0; t < 5; ++t) {
        set_gradients(inside, t);
        set_gradients(apart, t);
        for (std::size_t i = 0; i < inside.size(); ++i) {
          const torch::Tensor narrow = at::empty_like(inside[i].detach(), at::TensorOptions(type));
          narrow.copy_(inside[i].grad());
          inside[i].mutable_grad() = narrow;
          apart[i].mutable_grad() = narrow.to(at::kFloat).mul(0x1p-16).clamp(-0x1p-17, 0x1p-17);
        }
        a.step_with({.inv_scale = 0x1p-16, .clip_value = 0x1p-17});
        b.step();
      }
      EXPECT_LE(worst_difference(inside, apart), kBound);
    }
  }
}

Tensors make_clipped_matrices() {
  Tensors params{values(16, 16, 0), values(8, 40, 1), values(40, 8, 2)};
  for (torch::Tensor& param : params) param.requires_grad_();
  return params;
}

// Scaled down in fp16, such gradients would be zero.
TEST(ClipValue, is_of_the_unscaled_gradient_for_tam_and_muon) {
  check_against_apart<TAM>(TAMOptions(100).weight_decay(1e-4), make_params);
  check_against_apart<TAM>(TAMOptions(100).maximize(true), make_params);
  check_against_apart<Muon>(MuonOptions(0.02), make_clipped_matrices);
  check_against_apart<Muon>(MuonOptions(0.02).maximize(true).nesterov(false),
                            make_clipped_matrices);
}

TEST(ClipValue, is_what_all_ways_leave_in_the_gradients) {
  const StepControl control{
      .inv_scale = 0.25, .clip_value = 0.125, .grad = GradWriteBack::Unscaled};
  const auto check = [&](MultiTensorOptimizer& optimizer, Tensors& params) {
    set_gradients(params, 0);
    Tensors wanted;
    for (const torch::Tensor& param : params) {
      wanted.push_back(param.grad().mul(0.25).clamp(-0.125, 0.125));
    }
    optimizer.step_with(control);
    for (std::size_t i = 0; i < params.size(); ++i) {
      EXPECT_TRUE(params[i].grad().equal(wanted[i])) << i;
    }
  };
  for (const Implementation way : kWays) {
    Tensors params = make_params(), matrices = make_clipped_matrices();
    AdamW adamw(params, AdamWOptions(1e-3).implementation(way));
    check(adamw, params);
    Muon muon(matrices, MuonOptions(1e-3).implementation(way));
    check(muon, matrices);
  }
}

TEST(Clip, finds_what_is_not_finite_and_takes_tensors_of_nothing) {
  for (const Implementation way : kWays) {
    for (const double p : {1.0, 2.5, kLargest}) {
      Tensors params{torch::zeros({0}).requires_grad_(), torch::zeros({5}).requires_grad_()};
      SGD optimizer(params, SGDOptions(1).implementation(way));
      const StepControl control{.clip_value = 0.5, .norm_type = p, .skip_nonfinite = true};
      for (torch::Tensor& param : params) param.mutable_grad() = torch::ones_like(param);
      EXPECT_NEAR(optimizer.step_with(control).grad_norm, std::pow(5.0, 1 / p), 1e-9);
      EXPECT_EQ(params[1][4].item<float>(), -0.5f);
      params[1].mutable_grad()[2] = std::numeric_limits<float>::quiet_NaN();
      const StepReport report = optimizer.step_with(control);
      EXPECT_FALSE(report.stepped);
      EXPECT_EQ(report.first_nonfinite_tensor, 1);
      EXPECT_EQ(params[1][4].item<float>(), -0.5f);
    }
    Tensors params{torch::zeros({2}).requires_grad_()};
    SGD optimizer(params, SGDOptions(1).implementation(way));
    params[0].mutable_grad() = torch::tensor({INFINITY, NAN});
    optimizer.step_with({.clip_value = 0.5});
    EXPECT_EQ(params[0][0].item<float>(), -0.5f);
    EXPECT_TRUE(std::isnan(params[0][1].item<float>())) << "NaN stays NaN";
    EXPECT_THAT(error_of([&] { optimizer.step_with({.clip_norm = 1, .clip_value = 1}); }),
                HasSubstr("clip_norm or clip_value"));
  }
}

}  // namespace
}  // namespace hone::optim
