// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using test::same_bits;
using test::TensorSet;

// One tensor with the same gradient at every step.
struct ConstantGradient {
  explicit ConstantGradient(Index n, bool adaptive = false, float value = 0.25f)
      : set({n}, {.second_moment = adaptive}) {
    std::ranges::fill(set.grad(0), value);
    std::ranges::fill(set.values(set.param, 0), 0.0f);
  }
  StepReport step(const TAMGroup& group, TAMScope scope, const StepControl& control = {}) {
    return tam_step(set.plan(), {&group, 1}, scope, {&correlation, 1}, control, serial_executor());
  }
  TensorSet set;
  double correlation = 0;
};

TEST(Tam, a_constant_gradient_follows_the_closed_form) {
  for (const TAMScope scope : {TAMScope::Model, TAMScope::Tensor}) {
    ConstantGradient run(1000);
    const TAMGroup group{.lr = 0.01};
    for (Index t = 1; t <= 100; ++t) {
      run.step(group, scope);
      if (t != 1 && t != 2 && t != 3 && t != 10 && t != 100) continue;
      const double td = static_cast<double>(t);
      const double expected =
          10 * (1 + 1e-8) * (1 - std::pow(0.9, td)) - 0.5 * td * std::pow(0.9, td - 1);
      const double ratio = run.set.momentum[0][500] / 0.25;
      EXPECT_NEAR(ratio / expected, 1, 1e-6) << "t " << t;
      EXPECT_NEAR(run.correlation, 1 - std::pow(0.9, td - 1), 1e-8) << "t " << t;
    }
  }
}

TEST(Tam, adatam_steps_under_a_constant_gradient_are_the_derived_ones) {
  ConstantGradient run(64, true, 0.5f);
  const TAMGroup group{.lr = 1e-3};
  const std::map<Index, double> expected{
      {1, 15.811}, {2, 22.366}, {10, 45.864}, {22, 52.943}, {2000, 10.753}};
  double largest = 0;
  Index largest_at = 0;
  for (Index t = 1; t <= 2000; ++t) {
    // θ is put back to 0, so that its rounding does not hide the step.
    std::ranges::fill(run.set.values(run.set.param, 0), 0.0f);
    run.step(group, TAMScope::Tensor);
    const double size = -run.set.param[0][7] / 1e-3;
    if (size > largest) {
      largest = size;
      largest_at = t;
    }
    const auto known = expected.find(t);
    if (known != expected.end()) {
      EXPECT_NEAR(size, known->second, 0.01) << t;
    }
  }
  EXPECT_EQ(largest_at, 22);
}

// S of the next step for given momentum and gradient.
double next_cosine(std::span<const float> momentum, std::span<const float> grad,
                   const TAMGroup& group = {}, const StepControl& control = {}) {
  TensorSet set({static_cast<Index>(grad.size())});
  std::ranges::copy(momentum, set.values(set.momentum, 0).begin());
  std::ranges::copy(grad, set.grad(0).begin());
  double s = 0;
  tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, control, serial_executor());
  return s / (1 - group.decay_rate);
}

TEST(Tam, cosine_of_equal_opposite_and_disjoint_vectors) {
  std::vector<float> m{1, -2, 3, 0.5f, 0}, opposite(m), disjoint{0, 0, 0, 0, 4};
  for (float& value : opposite) value = -value;
  EXPECT_NEAR(next_cosine(m, m), 1, 1e-9);
  EXPECT_NEAR(next_cosine(m, opposite), -1, 1e-9);
  EXPECT_EQ(next_cosine(m, disjoint), 0);
}

TEST(Tam, zero_momentum_or_gradient_gives_cosine_zero_and_no_nan) {
  const std::vector<float> zero(5, 0.0f), some{1, 2, 3, 4, 5};
  for (const CosineGuard guard : {CosineGuard::Additive, CosineGuard::Clamp}) {
    const TAMGroup group{.guard = guard, .eps_norm = 0, .eps_corr = 0};
    EXPECT_EQ(next_cosine(zero, some, group), 0);
    EXPECT_EQ(next_cosine(some, zero, group), 0);
    EXPECT_EQ(next_cosine(zero, zero, group), 0);
  }
}

TEST(Tam, guards_differ_for_tiny_norms_as_their_formulas_say) {
  const std::vector<float> tiny{1e-12f, 0, 0};
  const TAMGroup additive{.guard = CosineGuard::Additive}, clamp{.guard = CosineGuard::Clamp};
  const double norm = 1e-12f;
  EXPECT_NEAR(next_cosine(tiny, tiny, additive) / (norm * norm / ((norm + 1e-10) * (norm + 1e-10))),
              1, 1e-6);
  EXPECT_NEAR(next_cosine(tiny, tiny, clamp) / (norm * norm / 1e-16), 1, 1e-6);
}

TEST(Tam, cosine_ignores_the_loss_scale_and_clipping) {
  TensorSet set({5000});
  PhiloxStream random(5);
  for (float& value : set.values(set.momentum, 0)) value = random.uniform() - 0.4f;
  const std::vector<float> m(set.values(set.momentum, 0).begin(),
                             set.values(set.momentum, 0).end());
  const std::vector<float> g(set.grad(0).begin(), set.grad(0).end());
  const TAMGroup group{.eps_norm = 0};
  const double plain = next_cosine(m, g, group);
  for (int j = -20; j <= 20; ++j) {
    std::vector<float> scaled(g);
    for (float& value : scaled) value = std::ldexp(value, j);
    EXPECT_EQ(next_cosine(m, scaled, group, {.inv_scale = std::ldexp(1.0, -j)}), plain) << j;
  }
  const double clipped = next_cosine(m, g, group, {.clip_norm = 0.37});
  EXPECT_NEAR(clipped, plain, 4 * std::ldexp(1.0, -24));
}

TEST(Tam, model_scope_equals_tensor_scope_for_one_tensor) {
  const TAMGroup group{.lr = 0.01, .guard = CosineGuard::Clamp};
  TensorSet a({70'001}), b({70'001});
  double sa = 0, sb = 0;
  ThreadPool pool(2);
  for (Index t = 0; t < 20; ++t) {
    a.set_step(t);
    b.set_step(t);
    tam_step(a.plan(), {&group, 1}, TAMScope::Model, {&sa, 1}, {}, pool);
    tam_step(b.plan(), {&group, 1}, TAMScope::Tensor, {&sb, 1}, {}, pool);
  }
  EXPECT_EQ(sa, sb);
  EXPECT_TRUE(same_bits(a.snapshot(), b.snapshot()));
}

TEST(Tam, model_scope_takes_one_cosine_over_all_tensors) {
  TensorSet split({600, 400}), joined({1000});
  for (Index i = 0; i < 1000; ++i) {
    const Index tensor = i < 600 ? 0 : 1, at = i < 600 ? i : i - 600;
    joined.grad(0)[i] = split.grad(tensor)[at];
    joined.momentum[0][i] = split.momentum[tensor][at] = static_cast<float>(i % 13) - 5.5f;
  }
  const TAMGroup group{.guard = CosineGuard::Clamp};
  double s_split = 0, s_joined = 0;
  tam_step(split.plan(), {&group, 1}, TAMScope::Model, {&s_split, 1}, {}, serial_executor());
  tam_step(joined.plan(), {&group, 1}, TAMScope::Tensor, {&s_joined, 1}, {}, serial_executor());
  EXPECT_NEAR(s_split, s_joined, 1e-12);
  EXPECT_NE(s_split, 0);
}

TEST(Tam, coupled_decay_with_clipping_equals_the_materialized_gradient) {
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.1}, plain{.lr = 0.01};
  TensorSet fused({3000, 20'000}), apart({3000, 20'000});
  std::vector<double> s_fused(2, 0.0), s_apart(2, 0.0);
  const StepControl control{.inv_scale = 0.125, .clip_norm = 2};
  for (Index t = 0; t < 30; ++t) {
    const auto before_fused = s_fused, before_apart = s_apart;
    fused.set_step(t);
    const StepReport report =
        tam_step(fused.plan(), {&group, 1}, TAMScope::Tensor, s_fused, control, serial_executor());
    ASSERT_LT(report.clip_coef, 1);
    apart.set_step(t);
    const float k = static_cast<float>(report.clip_coef * control.inv_scale);
    std::vector<std::vector<float>> effective;
    for (Index i = 0; i < 2; ++i) {
      effective.emplace_back(apart.grad(i).begin(), apart.grad(i).end());
      for (std::size_t e = 0; e < effective[i].size(); ++e) {
        effective[i][e] = k * effective[i][e] + 0.1f * apart.param[i][e];
      }
      apart.view_of(Slot::Grad, i).data = effective[i].data();
    }
    tam_step(apart.plan(), {&plain, 1}, TAMScope::Tensor, s_apart, {}, serial_executor());
    for (int i = 0; i < 2; ++i) {  // S = (s - γ s of the step before) / (1 - γ)
      const double cosine_fused = (s_fused[i] - 0.9 * before_fused[i]) / 0.1;
      const double cosine_apart = (s_apart[i] - 0.9 * before_apart[i]) / 0.1;
      EXPECT_NEAR(cosine_fused, cosine_apart, 1e-6) << "t " << t;
    }
  }
  for (Index i = 0; i < 2; ++i) {
    for (Index e = 0; e < fused.size(i); ++e) {
      ASSERT_NEAR(fused.param[i][e], apart.param[i][e], 1e-5);
    }
  }
}

TEST(Tam, correlation_stays_within_minus_one_and_one) {
  TensorSet set({1000});
  const TAMGroup group{.lr = 0.1};
  double s = 0;
  for (Index t = 0; t < 200; ++t) {
    set.set_step(t);
    tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, {&s, 1}, {}, serial_executor());
    ASSERT_LE(std::abs(s), 1);
  }
}

}  // namespace
}  // namespace hone::kernels
