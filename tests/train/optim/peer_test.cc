// SPDX-License-Identifier: Apache-2.0
// hone's optimizers against Python's torch.optim on the same gradients, 200 steps, two groups.
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/philox.h"
#include "hone/train/optim/adagrad.h"
#include "hone/train/optim/adam.h"
#include "hone/train/optim/rmsprop.h"
#include "hone/train/optim/sgd.h"
#include "tests/support/peer.h"
#include "tests/support/test_data.h"
#include "tests/train/optim/parity_support.h"

namespace hone::optim {
namespace {

using test::Tensors;

constexpr Index kSteps = 200;
constexpr std::size_t kInFirst = 2;
const std::vector<std::vector<std::int64_t>> kShapes{{1}, {1000}, {129, 33}, {3, 5, 7}};

using MakeOptimizer = std::function<std::unique_ptr<MultiTensorOptimizer>(const Tensors&)>;

// A rule with the settings of its two groups, here and in Python's words.
struct Case {
  const char* rule;
  Json first, second;
  MakeOptimizer make;
};

template <class Optimizer, class Options>
MakeOptimizer two_group_maker(const Options& a, const Options& b) {
  return [=](const Tensors& params) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    const auto cut = params.begin() + kInFirst;
    groups.emplace_back(Tensors(params.begin(), cut), std::make_unique<Options>(a));
    groups.emplace_back(Tensors(cut, params.end()), std::make_unique<Options>(b));
    return std::make_unique<Optimizer>(groups, test::default_options<Options>());
  };
}

std::vector<Case> cases() {
  return {
      {"sgd",
       {{"lr", 0.01}},
       {{"lr", 0.003}, {"weight_decay", 0.1}, {"maximize", true}},
       two_group_maker<SGD>(SGDOptions(0.01), SGDOptions(0.003).weight_decay(0.1).maximize(true))},
      {"sgd",
       {{"lr", 0.01}, {"momentum", 0.9}, {"dampening", 0.1}},
       {{"lr", 0.003}, {"momentum", 0.5}, {"nesterov", true}, {"weight_decay", 0.1}},
       two_group_maker<SGD>(SGDOptions(0.01).momentum(0.9).dampening(0.1),
                            SGDOptions(0.003).momentum(0.5).nesterov(true).weight_decay(0.1))},
      {"adam",
       {{"lr", 1e-3}, {"weight_decay", 0.1}},
       {{"lr", 3e-3}, {"betas", {0.8, 0.99}}},
       two_group_maker<Adam>(AdamOptions(1e-3).weight_decay(0.1),
                             AdamOptions(3e-3).betas({0.8, 0.99}))},
      {"adam",
       {{"lr", 1e-3}, {"amsgrad", true}, {"eps", 1e-6}},
       {{"lr", 3e-3}, {"amsgrad", true}, {"maximize", true}},
       two_group_maker<Adam>(AdamOptions(1e-3).amsgrad(true).eps(1e-6),
                             AdamOptions(3e-3).amsgrad(true).maximize(true))},
      {"adamw",
       {{"lr", 1e-3}, {"weight_decay", 0.1}},
       {{"lr", 3e-3}, {"betas", {0.8, 0.99}}, {"weight_decay", 0.02}, {"maximize", true}},
       two_group_maker<AdamW>(
           AdamWOptions(1e-3).weight_decay(0.1),
           AdamWOptions(3e-3).betas({0.8, 0.99}).weight_decay(0.02).maximize(true))},
      {"adamw",
       {{"lr", 1e-3}, {"amsgrad", true}},
       {{"lr", 3e-3}, {"amsgrad", true}, {"weight_decay", 0.3}},
       two_group_maker<AdamW>(AdamWOptions(1e-3).amsgrad(true),
                              AdamWOptions(3e-3).amsgrad(true).weight_decay(0.3))},
      {"adagrad",
       {{"lr", 1e-2}, {"weight_decay", 0.1}, {"lr_decay", 0.05}},
       {{"lr", 3e-2}, {"eps", 1e-6}, {"maximize", true}},
       two_group_maker<Adagrad>(AdagradOptions(1e-2).weight_decay(0.1).lr_decay(0.05),
                                AdagradOptions(3e-2).eps(1e-6).maximize(true))},
      {"adagrad",
       {{"lr", 1e-2}, {"initial_accumulator_value", 0.5}},
       {{"lr", 3e-2}},
       two_group_maker<Adagrad>(AdagradOptions(1e-2).initial_accumulator_value(0.5),
                                AdagradOptions(3e-2).initial_accumulator_value(0.5))},
      {"rmsprop",
       {{"lr", 1e-3}, {"weight_decay", 0.1}, {"momentum", 0.9}},
       {{"lr", 3e-3}, {"alpha", 0.9}, {"eps", 1e-3}, {"centered", true}, {"maximize", true}},
       two_group_maker<RMSprop>(
           RMSpropOptions(1e-3).weight_decay(0.1).momentum(0.9),
           RMSpropOptions(3e-3).alpha(0.9).eps(1e-3).centered(true).maximize(true))},
  };
}

// Parameters, then the gradients of every step, one behind the other.
class Numbers {
 public:
  Numbers() {
    for (const auto& shape : kShapes) per_step_ += torch::zeros(shape).numel();
    PhiloxStream random(77);
    all_.resize(static_cast<std::size_t>(per_step_ * (kSteps + 1)));
    for (std::size_t i = 0; i < all_.size(); ++i) {
      // Above 1 the roundings of 200 steps alone come near the bound.
      const bool is_param = i < static_cast<std::size_t>(per_step_);
      all_[i] = (is_param ? 1.0f : 4.0f) * (random.uniform() - 0.5f);
    }
  }
  Index per_step() const { return per_step_; }
  std::string bytes() const {
    return {reinterpret_cast<const char*>(all_.data()), all_.size() * sizeof(float)};
  }
  // The gradients of step t, from 1; 0: the parameters.
  Tensors at(Index t) const {
    Tensors out;
    const float* from = all_.data() + t * per_step_;
    for (const auto& shape : kShapes) {
      torch::Tensor tensor = torch::empty(shape);
      std::memcpy(tensor.data_ptr<float>(), from, tensor.nbytes());
      from += tensor.numel();
      out.push_back(tensor);
    }
    return out;
  }

 private:
  Index per_step_ = 0;
  std::vector<float> all_;
};

// Python's parameters behind the last step: [case, for-loop or fused, parameter].
std::vector<float> run_python(const Numbers& numbers) {
  Json given{{"shapes", kShapes}, {"steps", kSteps}, {"cases", Json::array()}};
  for (const Case& one : cases()) {
    for (const bool fused : {false, true}) {
      given["cases"].push_back({{"rule", one.rule},
                                {"groups", Json::array({one.first, one.second})},
                                {"in_first", kInFirst},
                                {"fused", fused}});
    }
  }
  const hone::test::TemporaryFolder folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  write_json_file(at("cases.json"), given);
  write_text_file(at("numbers.f32"), numbers.bytes());
  hone::test::run_peer(
      "tests/train/optim/peer_optimizers.py",
      {at("cases.json").string(), at("numbers.f32").string(), at("out.f32").string()});
  const std::string bytes = read_text_file(at("out.f32"));
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

TEST(AgainstPython, every_rule_that_torch_optim_has_for_200_steps) {
  HONE_REQUIRE_PEER("torch", "numpy");
  const Numbers numbers;
  const std::vector<float> theirs = run_python(numbers);
  ASSERT_EQ(theirs.size(), cases().size() * 2 * static_cast<std::size_t>(numbers.per_step()));
  const float* want = theirs.data();
  for (const Case& one : cases()) {
    Tensors params = numbers.at(0);
    for (torch::Tensor& param : params) param.requires_grad_();
    const auto optimizer = one.make(params);
    for (Index t = 1; t <= kSteps; ++t) {
      const Tensors grads = numbers.at(t);
      for (std::size_t i = 0; i < params.size(); ++i) params[i].mutable_grad() = grads[i];
      optimizer->step();
    }
    for (const char* way : {"for-loop", "fused"}) {
      for (const torch::Tensor& param : params) {
        const float* got = param.data_ptr<float>();
        for (Index i = 0; i < param.numel(); ++i, ++want) {
          ASSERT_NEAR(got[i], *want, test::kBound * std::max(1.0f, std::abs(*want)))
              << one.rule << ' ' << one.first << ' ' << one.second << ' ' << way << " at " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace hone::optim
