// SPDX-License-Identifier: Apache-2.0
// Clipping by value and by norms of any type, inside of the step, against the same done apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::same_bits;
using hone::test::TensorSet;
using test::DoubleRule;
using test::error_of;
using test::kInfinity;
using test::kNan;
using testing::HasSubstr;

const std::vector<Index> kSizes{1, 50'003, 16'384, 7, 0, 1023};
constexpr double kAll = std::numeric_limits<double>::infinity();
// A power of two: scaling rounds nothing, wherever it happens.
constexpr float kInvScale = 0.125f, kLimit = 0.04f;

float unscaled_and_limited(float g) { return std::clamp(g * kInvScale, -kLimit, kLimit); }

void clip_apart(TensorSet& set) {
  for (Index i = 0; i < set.tensors(); ++i) {
    for (float& g : set.grad(i)) g = unscaled_and_limited(g);
  }
}

TEST(ClipValue, inside_of_the_step_has_the_bits_of_gradients_clipped_before) {
  ThreadPool pool(2);
  std::vector<DoubleRule> rules = test::double_rules();
  rules.push_back(test::lion_double_rule());
  for (const DoubleRule& rule : rules) {
    TensorSet inside(kSizes, rule.slots), apart(kSizes, rule.slots);
    std::vector<double> s_inside(kSizes.size(), 0.0), s_apart(s_inside);
    for (Index t = 0; t < 3; ++t) {
      for (Index i = 0; i < inside.tensors(); ++i) {
        std::ranges::copy(test::random_values(inside.size(i), 70 + t), inside.grad(i).begin());
        std::ranges::copy(inside.grad(i), apart.grad(i).begin());
      }
      clip_apart(apart);
      rule.step(inside.plan(), s_inside, {.inv_scale = kInvScale, .clip_value = kLimit}, pool);
      rule.step(apart.plan(), s_apart, {}, pool);
    }
    EXPECT_TRUE(same_bits(inside.snapshot(), apart.snapshot())) << rule.name;
    EXPECT_EQ(s_inside, s_apart) << rule.name;
  }
}

// Without anything that needs all gradients, both passes go over a tensor while it is in cache.
TEST(ClipValue, is_the_same_with_and_without_a_norm_and_in_a_checked_step) {
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.01};
  const auto run = [&](const StepControl& control) {
    TensorSet set(kSizes);
    std::vector<double> s(kSizes.size(), 0.0);
    for (Index t = 0; t < 2; ++t) {
      tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, s, control, serial_executor());
    }
    return std::pair(set.snapshot(), s);
  };
  const auto [cached, s] = run({.clip_value = 0.1});
  for (const StepControl& control :
       {StepControl{.clip_norm = kAll, .clip_value = 0.1},
        StepControl{.clip_value = 0.1, .norm_type = 1, .skip_nonfinite = true},
        StepControl{.clip_value = 0.1, .checked = true}}) {
    const auto [swept, s_swept] = run(control);
    EXPECT_TRUE(same_bits(swept, cached));
    EXPECT_EQ(s_swept, s);
  }
}

TEST(ClipValue, reaches_the_cosines_of_rows_and_of_the_model) {
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.01};
  for (const TAMScope scope : {TAMScope::Row, TAMScope::Model}) {
    const bool rows = scope == TAMScope::Row;
    const TAMMethod method{.scope = scope, .row_length = rows ? 65 : 0};
    const auto run = [&](bool inside) {
      MixedSet set({{.shape = Shape{30, 65}}});
      if (rows) set.row_length = {65};
      std::vector<double> s(rows ? 30 : 1, 0.0);
      std::vector<double*> places{s.data()};
      for (Index t = 0; t < 3; ++t) {
        auto grad = test::random_values(30 * 65, 5 + t);
        if (!inside) std::ranges::transform(grad, grad.begin(), unscaled_and_limited);
        set.write(Slot::Grad, 0, grad);
        const TAMMethods methods{
            .of_tensor = {&method, 1},
            .correlation = rows ? std::span<double* const>(places) : std::span<double* const>(),
            .values = rows ? std::span<double>() : std::span(s)};
        const StepControl control =
            inside ? StepControl{.inv_scale = kInvScale, .clip_value = kLimit} : StepControl{};
        tam_step(set.plan(), {&group, 1}, methods, control, serial_executor());
      }
      return std::pair(set.read(Slot::Param, 0), s);
    };
    EXPECT_NE(run(true).second[0], 0);
    EXPECT_EQ(run(true), run(false)) << int(scope);
  }
}

TEST(ClipValue, reaches_moments_and_gradients_of_fewer_bits) {
  using enum Dtype;
  struct Types {
    Dtype grad, momentum, second_moment;
  };
  const AdamGroup group{.lr = 0.01};
  for (const Types& types : {Types{Float32, BFloat16, BFloat16}, Types{Float32, Int8, UInt8},
                             Types{Float16, Float32, Float32}, Types{BFloat16, Int8, UInt8}}) {
    const auto run = [&](bool inside) {
      MixedSet set({{.shape = Shape{1000},
                     .grad = inside ? types.grad : Float32,
                     .momentum = types.momentum,
                     .second_moment = types.second_moment}},
                   {.second_moment = true});
      for (Index t = 0; t < 3; ++t) {
        set.draw_gradients(t);
        auto grad = set.read(Slot::Grad, 0);
        if (!inside) {
          MixedSet rounded({{.shape = Shape{1000}, .grad = types.grad}});
          rounded.write(Slot::Grad, 0, grad);
          grad = rounded.read(Slot::Grad, 0);
          std::ranges::transform(grad, grad.begin(), unscaled_and_limited);
          set.write(Slot::Grad, 0, grad);
        }
        const StepControl control =
            inside ? StepControl{.inv_scale = kInvScale, .clip_value = kLimit} : StepControl{};
        adam_step(set.plan(), {&group, 1}, control, serial_executor());
      }
      return set.bytes(/*gradients=*/false);
    };
    EXPECT_EQ(run(true), run(false)) << name_of(types.grad) << ' ' << name_of(types.momentum);
  }
}

TEST(ClipValue, limits_infinity_keeps_nan_and_leaves_the_norm_alone) {
  const SGDGroup group{.lr = 1};
  TensorSet set({37}, {.momentum = false});
  const auto before = set.param[0];
  set.grad(0)[3] = -kInfinity;
  set.grad(0)[36] = kNan;
  const StepControl control{.clip_value = 0.5, .grad = GradWriteBack::Unscaled};
  EXPECT_TRUE(sgd_step(set.plan(), {&group, 1}, control, serial_executor()).stepped);
  EXPECT_EQ(set.param[0][3], before[3] + 0.5f);
  EXPECT_EQ(set.grad(0)[3], -0.5f);
  EXPECT_TRUE(std::isnan(set.param[0][36]));
  EXPECT_TRUE(std::isnan(set.grad(0)[36]));
  StepControl careful = control;
  careful.skip_nonfinite = true;
  set.grad(0)[3] = -kInfinity;
  set.grad(0)[36] = 0;
  std::vector<double> s{0};
  const TAMGroup tam;
  TensorSet other({37});
  other.grad(0)[3] = kInfinity;
  for (const StepReport& report :
       {sgd_step(set.plan(), {&group, 1}, careful, serial_executor()),
        tam_step(other.plan(), {&tam, 1}, TAMScope::Tensor, s, careful, serial_executor())}) {
    EXPECT_FALSE(report.stepped);
    EXPECT_EQ(report.first_nonfinite_tensor, 0);
    EXPECT_EQ(report.grad_norm, kAll);
  }
  other.grad(0)[3] = 3e38f;
  EXPECT_NEAR(
      tam_step(other.plan(), {&tam, 1}, TAMScope::Tensor, s, careful, serial_executor()).grad_norm /
          double{3e38f},
      1, 1e-12)
      << "before clipping";
}

TEST(ClipValue, is_what_write_back_leaves) {
  for (const Index n : {1, 15, 1001}) {
    TensorSet set({n}, {.momentum = false});
    const std::vector<float> raw(set.grad(0).begin(), set.grad(0).end());
    const SGDGroup group{.lr = 0.01, .maximize = true};
    sgd_step(set.plan(), {&group, 1},
             {.inv_scale = kInvScale, .clip_value = kLimit, .grad = GradWriteBack::Unscaled},
             serial_executor());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      ASSERT_EQ(set.grad(0)[i], unscaled_and_limited(raw[i]));
    }
  }
}

// ---- norms

double norm_apart(TensorSet& set, double p) {
  double sum = 0, largest = 0;
  for (Index i = 0; i < set.tensors(); ++i) {
    for (const float g : set.grad(i)) {
      const double size = std::abs(double{g} * kInvScale);
      sum += std::pow(size, p);
      largest = std::max(largest, size);
    }
  }
  return std::isinf(p) ? largest : std::pow(sum, 1 / p);
}

TEST(NormType, is_reported_and_clips_as_the_norm_of_all_elements) {
  const AdamGroup adam{.lr = 0.01};
  const TAMGroup tam{.lr = 0.01};
  for (const double p : {1.0, 2.0, 3.0, 0.5, 1.5, kAll}) {
    for (const bool torque : {false, true}) {
      TensorSet inside(kSizes, {.second_moment = true}), apart(kSizes, {.second_moment = true});
      std::vector<double> s_inside(kSizes.size(), 0.0), s_apart(s_inside);
      const double norm = norm_apart(inside, p), limit = norm / 4;
      const auto step = [&](TensorSet& set, std::vector<double>& s, const StepControl& control) {
        return torque ? tam_step(set.plan(), {&tam, 1}, TAMScope::Tensor, s, control,
                                 serial_executor())
                      : adam_step(set.plan(), {&adam, 1}, control, serial_executor());
      };
      const StepReport report =
          step(inside, s_inside, {.inv_scale = kInvScale, .clip_norm = limit, .norm_type = p});
      EXPECT_NEAR(report.grad_norm / norm, 1, 1e-12) << p;
      EXPECT_NEAR(report.clip_coef / (limit / (norm + 1e-6)), 1, 1e-12) << p;
      for (Index i = 0; i < apart.tensors(); ++i) {
        for (float& g : apart.grad(i)) g *= static_cast<float>(kInvScale * report.clip_coef);
      }
      step(apart, s_apart, {});
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        EXPECT_NEAR(s_inside[i], s_apart[i], 1e-6);
        for (std::size_t e = 0; e < inside.param[i].size(); ++e) {
          ASSERT_NEAR(inside.param[i][e], apart.param[i][e], 4 * 0x1p-24) << p;
        }
      }
    }
  }
}

TEST(NormType, has_the_same_bits_for_any_number_of_threads_and_any_layout) {
  for (const double p : {1.0, 2.0, 0.7, 5.0, kAll}) {
    const StepControl control{.clip_norm = kAll, .clip_value = 0.1, .norm_type = p};
    double first = 0;
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      TensorSet set(kSizes);
      std::vector<double> s(kSizes.size(), 0.0);
      const TAMGroup group;
      const double norm =
          tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, s, control, pool).grad_norm;
      if (threads == 1) first = norm;
      EXPECT_EQ(norm, first) << p;
    }
    MixedSet turned({{.shape = Shape{70, 9}, .grad_strides = {1, 70}}}), straight({{Shape{70, 9}}});
    straight.write(Slot::Grad, 0, turned.read(Slot::Grad, 0));
    const SGDGroup group{.lr = 0.1, .momentum = 0.9};
    EXPECT_NEAR(sgd_step(turned.plan(), {&group, 1}, control, serial_executor()).grad_norm,
                sgd_step(straight.plan(), {&group, 1}, control, serial_executor()).grad_norm,
                1e-11);
  }
}

TEST(NormType, finds_what_is_not_finite_and_only_that) {
  const SGDGroup group{.lr = 0};
  for (const double p : {1.0, 2.0, 10.0, 0.25, kAll}) {
    TensorSet set({40, 20'000, 33}, {.momentum = false});
    const StepControl control{.norm_type = p, .skip_nonfinite = true};
    set.grad(1)[19'999] = 3e38f;
    const StepReport fine = sgd_step(set.plan(), {&group, 1}, control, serial_executor());
    EXPECT_TRUE(fine.stepped) << p;
    EXPECT_GE(fine.grad_norm, double{3e38f}) << "powers beyond fp64 are no infinity";
    for (const Index tensor : {0, 1, 2}) {
      for (const Index at : {Index{0}, Index{16}, set.size(tensor) - 1}) {
        for (const float bad : {kInfinity, -kInfinity, kNan}) {
          const float good = std::exchange(set.grad(tensor)[at], bad);
          const StepReport report = sgd_step(set.plan(), {&group, 1}, control, serial_executor());
          ASSERT_FALSE(report.stepped) << p;
          ASSERT_EQ(report.first_nonfinite_tensor, tensor);
          ASSERT_EQ(std::isnan(report.grad_norm), std::isnan(bad));
          set.grad(tensor)[at] = good;
        }
      }
    }
    for (Index i = 0; i < 3; ++i) std::ranges::fill(set.grad(i), 0.0f);
    EXPECT_EQ(sgd_step(set.plan(), {&group, 1}, control, serial_executor()).grad_norm, 0);
    TensorSet nothing({}, {.momentum = false});
    EXPECT_EQ(sgd_step(nothing.plan(), {&group, 1}, control, serial_executor()).grad_norm, 0);
  }
}

TEST(ClipErrors, name_the_field_and_change_nothing) {
  TensorSet set({40});
  const auto before = set.snapshot();
  const SGDGroup group{.lr = 1, .momentum = 0.9};
  const auto refused = [&](const StepControl& control) {
    return error_of([&] { sgd_step(set.plan(), {&group, 1}, control, serial_executor()); });
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-1.0, nan}) {
    EXPECT_THAT(refused({.clip_value = bad}), HasSubstr("clip_value of at least 0"));
  }
  for (const double bad : {0.0, -2.0, nan}) {
    EXPECT_THAT(refused({.norm_type = bad}), HasSubstr("a norm_type above 0"));
  }
  EXPECT_THAT(refused({.clip_norm = 1, .clip_value = 1}),
              HasSubstr("expected clip_norm or clip_value, got both"));
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(refused({.clip_norm = kInfinity, .clip_value = 1}), "no error");
  EXPECT_EQ(refused({.clip_norm = 1, .clip_value = kInfinity}), "no error");
}

}  // namespace
}  // namespace hone::kernels
