// SPDX-License-Identifier: Apache-2.0
// Every rule on every instruction set against the same rule with all state in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;
using test::DoubleRule;
using test::DoubleState;
using test::kTrainSteps;

constexpr Dtype kGradTypes[] = {Dtype::Float32, Dtype::BFloat16, Dtype::Float16};

// Gradients of 100 steps that all three types hold exactly: odd multiples of 2^-8 in (-1, 1). Every
// step's begin 17 elements after those of the step before.
class ExactGradients {
 public:
  explicit ExactGradients(Index n) : n_(n), values_(static_cast<std::size_t>(n + 17 * 101)) {
    PhiloxStream random(9);
    for (float& value : values_) value = (2 * static_cast<float>(random.below(256)) - 255) / 256;
    for (std::size_t type = 0; type < 3; ++type) {
      const Dtype dtype = kGradTypes[type];
      bytes_[type].resize(values_.size() * static_cast<std::size_t>(bytes_of(dtype)));
      if (dtype == Dtype::Float32) {
        std::memcpy(bytes_[type].data(), values_.data(), bytes_[type].size());
      } else {
        encode_chunk_ref(values_.data(), {.nearest = true},
                         {dtype, bytes_[type].data(), nullptr, static_cast<Index>(values_.size())});
      }
    }
  }
  std::span<const float> values(Index t) const {
    return std::span(values_).subspan(static_cast<std::size_t>(17 * t),
                                      static_cast<std::size_t>(n_));
  }
  TensorView view(std::size_t type, Index t) {
    const Dtype dtype = kGradTypes[type];
    return {bytes_[type].data() + 17 * t * bytes_of(dtype), dtype, Shape{n_}};
  }

 private:
  Index n_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_[3];
};

// One set of tensors per type of gradient, stepped alike.
struct Run {
  Run(Index n, const hone::test::TensorSetOptions& options, std::size_t type_in)
      : type(type_in), set({n}, options) {}
  void step(const DoubleRule& rule, ExactGradients& gradients, Index t, Executor& executor) {
    set.view_of(Slot::Grad, 0) = gradients.view(type, t);
    if (t == 1) {
      plan = set.plan();
    } else {
      plan.follow_or_throw(set.lists());
    }
    rule.step(plan, {&correlation, 1}, {}, executor);
  }
  std::size_t type;
  TensorSet set;
  MultiTensorPlan plan;
  double correlation = 0;
};

// Largest |θ - reference| / max(|θ|, Σ|Δθ|) after `steps`; bf16 and fp16 gradients give the bits
// of f32. `mark(state, uncertain)` marks elements whose step may go either way.
using Mark = std::function<void(DoubleState&, std::vector<bool>&)>;
void check_rule(const DoubleRule& rule, Index n, Index misalign, Executor& executor,
                const Mark& mark = {}, Index steps = kTrainSteps) {
  hone::test::TensorSetOptions options = rule.slots;
  options.misalign = misalign;
  ExactGradients gradients(n);
  std::vector<Run> runs;
  for (std::size_t type = 0; type < 3; ++type) runs.emplace_back(n, options, type);
  TensorSet& set = runs[0].set;
  DoubleState state(set, 0);
  std::vector<double> way(state.param.size(), 0.0), before;
  std::vector<bool> uncertain(state.param.size(), false);
  for (Index t = 1; t <= steps; ++t) {
    for (Run& run : runs) run.step(rule, gradients, t, executor);
    before = state.param;
    state.grad.assign(gradients.values(t).begin(), gradients.values(t).end());
    if (mark) mark(state, uncertain);
    rule.reference(state, t);
    for (std::size_t i = 0; i < way.size(); ++i) way[i] += std::abs(state.param[i] - before[i]);
  }
  double worst = 0;
  std::size_t worst_at = 0;
  const auto param = set.values(set.param, 0);
  for (std::size_t i = 0; i < way.size(); ++i) {
    if (uncertain[i]) continue;
    const double error =
        std::abs(param[i] - state.param[i]) / std::max(std::abs(state.param[i]), way[i]);
    if (std::isnan(error) || error > worst) {
      worst = error;
      worst_at = i;
    }
  }
  const auto where = testing::Message() << rule.name << " n " << n << " misalign " << misalign;
  const double unit = 0x1p-24;
  EXPECT_LE(worst, 8 * unit * std::sqrt(static_cast<double>(steps)))
      << where << " at " << worst_at << ": " << param[worst_at] << " for " << state.param[worst_at];
  EXPECT_LE(std::ranges::count(uncertain, true), n / 1000 + 3) << where;
  EXPECT_EQ(set.step[0], steps);
  for (const std::size_t type : {1u, 2u}) {
    EXPECT_TRUE(same_bits(runs[type].set.snapshot(), set.snapshot()))
        << where << " gradients in " << name_of(kGradTypes[type]);
    EXPECT_EQ(runs[type].correlation, runs[0].correlation) << where;
  }
}

constexpr Index kSizes[] = {0, 1, 7, 1023, 16383, 16384, 16385};
constexpr Index kManyChunks = 200'003, kStepsOfManyChunks = 20;

TEST(Rules, match_the_double_reference_for_100_steps) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : test::double_rules()) {
    for (const Index n : kSizes) {
      check_rule(rule, n, 0, pool);
      check_rule(rule, n, 1, pool);
    }
  }
}

TEST(Rules, match_the_double_reference_on_many_chunks) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : test::double_rules()) {
    check_rule(rule, kManyChunks, 3, pool, {}, kStepsOfManyChunks);
  }
}

// Elements whose sign argument once lay within rounding of 0 may go either way.
void mark_lion(DoubleState& state, std::vector<bool>& uncertain) {
  for (std::size_t i = 0; i < uncertain.size(); ++i) {
    const double argument = 0.9 * state.momentum[i] - 0.1 * state.grad[i];  // maximizing
    if (std::abs(argument) < 1e-6) uncertain[i] = true;
  }
}

TEST(Rules, lion_matches_the_double_reference_where_signs_are_certain) {
  ThreadPool pool(2);
  const DoubleRule rule = test::lion_double_rule();
  for (const Index n : kSizes) {
    check_rule(rule, n, 0, pool, mark_lion);
    check_rule(rule, n, 1, pool, mark_lion);
  }
  check_rule(rule, kManyChunks, 3, pool, mark_lion, kStepsOfManyChunks);
}

TEST(Rules, first_adam_step_worked_by_hand) {
  TensorSet set({3}, {.second_moment = true});
  const float params[] = {1.0f, -2.0f, 0.5f}, grads[] = {0.5f, -4.0f, 0.0f};
  std::copy_n(params, 3, set.values(set.param, 0).data());
  std::copy_n(grads, 3, set.grad(0).data());
  const AdamGroup group{.lr = 0.1, .weight_decay = 0.5};
  adam_step(set.plan(), {&group, 1}, {}, serial_executor());
  // θ (1 - 0.05) - 0.1 sign(g): at t = 1 both corrections leave g / |g|.
  EXPECT_NEAR(set.param[0][0], 0.95 - 0.1, 1e-6);
  EXPECT_NEAR(set.param[0][1], -1.9 + 0.1, 1e-6);
  EXPECT_NEAR(set.param[0][2], 0.475, 1e-6);
  EXPECT_NEAR(set.momentum[0][1], -0.4, 1e-7);
  EXPECT_NEAR(set.second_moment[0][1], 0.016, 1e-8);
}

TEST(Rules, bias_correction_is_exact_after_two_to_the_24_steps) {
  const AdamGroup group{.lr = 1, .beta1 = 0.9, .beta2 = 1 - 1e-9};
  const Index t = (Index{1} << 24) + 1;
  const double correction = -std::expm1(static_cast<double>(t) * std::log1p(-1e-9));
  EXPECT_NEAR(make_scalars(group, t, 1).root_scale * std::sqrt(correction), 1, 2e-7);
  EXPECT_NE(bias_correction(group.beta2, t - 1), bias_correction(group.beta2, t));
}

}  // namespace
}  // namespace hone::kernels
