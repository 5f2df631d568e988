// SPDX-License-Identifier: Apache-2.0
// What holds for every rule: threads, splits, skipping, clipping, write-back, layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/multi_tensor/tam_scope_step.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using test::same_bits;
using test::TensorSet;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const std::vector<Index> kMixedSizes{1, 100'003, 16'384, 7, 0, 16'385, 1023, 300'000, 40'000};

// A TAM step is the one with most structure: sums, batches, state outside the tensors.
StepReport tam(TensorSet& set, std::vector<double>& s, const StepControl& control,
               Executor& executor) {
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.01};
  return tam_step(set.plan(), {&group, 1}, TAMScope::Tensor, s, control, executor);
}

TEST(Structure, results_are_bit_equal_for_1_2_3_and_8_threads) {
  for (const StepControl& control : {StepControl{}, StepControl{.clip_norm = 1}}) {
    std::vector<std::vector<float>> expected;
    std::vector<double> expected_s;
    double expected_norm = 0;
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      TensorSet set(kMixedSizes);
      std::vector<double> s(kMixedSizes.size(), 0.0);
      double norm = 0;
      for (Index t = 0; t < 5; ++t) {
        set.set_step(t);
        norm = tam(set, s, control, pool).grad_norm;
      }
      if (threads == 1) {
        expected = set.snapshot();
        expected_s = s;
        expected_norm = norm;
      }
      EXPECT_TRUE(same_bits(set.snapshot(), expected)) << threads;
      EXPECT_EQ(s, expected_s) << threads;
      EXPECT_EQ(norm, expected_norm) << threads;
    }
  }
}

TEST(Structure, results_are_bit_equal_over_any_split_of_the_list) {
  ThreadPool pool(2);
  TensorSet whole(kMixedSizes), split(kMixedSizes);
  std::vector<double> s_whole(kMixedSizes.size(), 0.0), s_split(s_whole);
  const TAMGroup group{.lr = 0.01, .weight_decay = 0.01};
  for (Index t = 0; t < 3; ++t) {
    whole.set_step(t);
    split.set_step(t);
    tam(whole, s_whole, {}, pool);
    const MultiTensorLists all = split.lists();
    const std::size_t count = kMixedSizes.size();
    for (std::size_t begin = 0, end = 1; begin < count;
         begin = end, end = std::min(count, end + 3)) {
      const auto part = [&](auto list) { return list.subspan(begin, end - begin); };
      const MultiTensorPlan plan = MultiTensorPlan::build_or_throw({part(all.param),
                                                                    part(all.grad),
                                                                    part(all.momentum),
                                                                    {},
                                                                    {},
                                                                    part(all.group),
                                                                    part(all.step)});
      tam_step(plan, {&group, 1}, TAMScope::Tensor, part(std::span(s_split)), {}, pool);
    }
  }
  EXPECT_TRUE(same_bits(whole.snapshot(), split.snapshot()));
  EXPECT_EQ(s_whole, s_split);
  EXPECT_EQ(whole.step, split.step);
}

TEST(Structure, two_sweeps_and_in_cache_passes_give_the_same_bits) {
  ThreadPool pool(2);
  TensorSet cached(kMixedSizes), swept(kMixedSizes);
  std::vector<double> s_cached(kMixedSizes.size(), 0.0), s_swept(s_cached);
  const StepControl measure{.clip_norm = std::numeric_limits<double>::infinity()};
  for (Index t = 0; t < 3; ++t) {
    cached.set_step(t);
    swept.set_step(t);
    EXPECT_EQ(tam(cached, s_cached, {}, pool).grad_norm, -1);
    EXPECT_GT(tam(swept, s_swept, measure, pool).grad_norm, 0);
  }
  EXPECT_TRUE(same_bits(cached.snapshot(), swept.snapshot()));
  EXPECT_EQ(s_cached, s_swept);
}

TEST(Structure, inf_or_nan_anywhere_leaves_everything_bit_identical) {
  ThreadPool pool(2);
  const std::vector<Index> sizes(50, 700);
  TensorSet set(sizes, {.second_moment = true});
  const AdamGroup group{.lr = 0.01};
  adam_step(set.plan(), {&group, 1}, {}, pool);
  const auto before = set.snapshot();
  const auto step_before = set.step;
  for (Index tensor = 0; tensor < 50; ++tensor) {
    for (const Index at : {0, 350, 699}) {
      for (const float bad : {kInf, -kInf, kNan}) {
        const float good = std::exchange(set.grad(tensor)[at], bad);
        for (const StepControl& control :
             {StepControl{.skip_nonfinite = true}, StepControl{.inv_scale = 0.5, .clip_norm = 1},
              StepControl{.grad = GradWriteBack::Zero, .skip_nonfinite = true}}) {
          const StepReport report = adam_step(set.plan(), {&group, 1}, control, pool);
          ASSERT_FALSE(report.stepped);
          ASSERT_EQ(report.first_nonfinite_tensor, tensor);
        }
        set.grad(tensor)[at] = good;
      }
    }
  }
  EXPECT_TRUE(same_bits(set.snapshot(), before));
  EXPECT_EQ(set.step, step_before);
}

TEST(Structure, tam_keeps_its_correlation_when_a_step_is_skipped) {
  TensorSet set({100, 20'000});
  std::vector<double> s{0.25, -0.5};
  set.grad(1)[19'999] = kNan;
  EXPECT_FALSE(tam(set, s, {.skip_nonfinite = true}, serial_executor()).stepped);
  EXPECT_EQ(s, (std::vector<double>{0.25, -0.5}));
}

TEST(Structure, huge_finite_gradients_are_not_infinite) {
  TensorSet set({10'000'000}, {.momentum = false});
  std::ranges::fill(set.grad(0), 3e38f);
  const SGDGroup group{.lr = 1e-40};
  ThreadPool pool(2);
  const StepReport report =
      sgd_step(set.plan(), {&group, 1}, {.clip_norm = 1, .skip_nonfinite = true}, pool);
  EXPECT_TRUE(report.stepped);
  EXPECT_NEAR(report.grad_norm / (static_cast<double>(3e38f) * std::sqrt(1e7)), 1, 1e-6);
}

TEST(Structure, without_a_check_nonfinite_gradients_pass_through) {
  TensorSet set({3}, {.momentum = false});
  set.grad(0)[1] = kNan;
  const SGDGroup group{.lr = 1};
  EXPECT_TRUE(sgd_step(set.plan(), {&group, 1}, {}, serial_executor()).stepped);
  EXPECT_TRUE(std::isnan(set.param[0][1]));
  EXPECT_TRUE(std::isfinite(set.param[0][2]));
}

TEST(Structure, fused_unscale_and_clip_equal_the_three_done_apart) {
  TensorSet fused({5000, 17'000}, {.second_moment = true, .scale = 64});
  TensorSet apart({5000, 17'000}, {.second_moment = true, .scale = 64});
  const AdamGroup group{.lr = 0.01};
  const StepReport report = adam_step(fused.plan(), {&group, 1},
                                      {.inv_scale = 1.0 / 64, .clip_norm = 0.5}, serial_executor());
  double gg = 0;
  for (Index i = 0; i < 2; ++i) {
    for (float& g : apart.grad(i)) {
      g /= 64;
      gg += static_cast<double>(g) * g;
    }
  }
  EXPECT_NEAR(report.grad_norm, std::sqrt(gg), 1e-9 * std::sqrt(gg));
  const double coef = 0.5 / (std::sqrt(gg) + 1e-6);
  EXPECT_NEAR(report.clip_coef, coef, 1e-9);
  for (Index i = 0; i < 2; ++i) {
    for (float& g : apart.grad(i)) g *= static_cast<float>(coef);
  }
  adam_step(apart.plan(), {&group, 1}, {}, serial_executor());
  const double tolerance = 4 * std::ldexp(1.0, -24);
  for (Index i = 0; i < 2; ++i) {
    for (Index e = 0; e < fused.size(i); ++e) {
      const float a = fused.param[i][e], b = apart.param[i][e];
      ASSERT_NEAR(a, b, tolerance * std::max(1.0f, std::abs(b)));
      ASSERT_NEAR(fused.momentum[i][e], apart.momentum[i][e],
                  tolerance * std::abs(apart.momentum[i][e]));
    }
  }
}

TEST(Structure, write_back_leaves_zero_or_the_unscaled_clipped_gradient) {
  for (const bool maximize : {false, true}) {
    TensorSet set({1001}, {.second_moment = true});
    const AdamGroup group{.lr = 0.01, .maximize = maximize};
    const std::vector<float> raw(set.grad(0).begin(), set.grad(0).end());
    const StepReport report = adam_step(
        set.plan(), {&group, 1},
        {.inv_scale = 0.5, .clip_norm = 1, .grad = GradWriteBack::Unscaled}, serial_executor());
    const float k = static_cast<float>(0.5 * report.clip_coef);
    for (Index e = 0; e < 1001; ++e) ASSERT_EQ(set.grad(0)[e], raw[e] * k);
    adam_step(set.plan(), {&group, 1}, {.grad = GradWriteBack::Zero}, serial_executor());
    for (const float g : set.grad(0)) ASSERT_EQ(g, 0);
  }
}

TEST(Structure, checked_step_changes_nothing_when_a_new_value_is_infinite) {
  struct Case {
    double lr;
    float huge;             // last gradient of the second tensor
    Index expected_tensor;  // -1: the step is fine
  };
  for (const Case& c : {Case{1e39, 0, 0}, Case{10, 3e38f, 1}, Case{0.01, 0, -1}}) {
    TensorSet checked({200, 30'000}), plain({200, 30'000});
    std::vector<double> s_checked(2, 0.0), s_plain(2, 0.0);
    const TAMGroup group{.lr = c.lr};
    checked.grad(1)[29'999] = plain.grad(1)[29'999] = c.huge;
    const auto before = checked.snapshot();
    const StepReport report = tam_step(checked.plan(), {&group, 1}, TAMScope::Tensor, s_checked,
                                       {.checked = true}, serial_executor());
    tam_step(plain.plan(), {&group, 1}, TAMScope::Tensor, s_plain, {}, serial_executor());
    EXPECT_EQ(report.stepped, c.expected_tensor < 0);
    EXPECT_EQ(report.first_nonfinite_tensor, c.expected_tensor);
    if (report.stepped) {
      EXPECT_TRUE(same_bits(checked.snapshot(), plain.snapshot()));
      EXPECT_EQ(s_checked, s_plain);
      continue;
    }
    EXPECT_TRUE(same_bits(checked.snapshot(), before));
    EXPECT_EQ(checked.step, (std::vector<Index>{0, 0}));
    EXPECT_EQ(s_checked, (std::vector<double>{0, 0}));
    EXPECT_FALSE(c.huge == 0 ? std::isfinite(plain.param[0][5])
                             : std::isfinite(plain.param[1][29'999]));
  }
}

// A [rows, cols] tensor whose slots lie in memory in different ways, against the contiguous one.
TEST(Structure, strided_tensors_equal_contiguous_ones) {
  constexpr Index kRows = 150, kCols = 131, kCount = kRows * kCols;
  const AdamGroup group{.lr = 0.01, .weight_decay = 0.1};
  TensorSet plain({kCount}, {.second_moment = true});
  // Parameter and state: columns 0…130 of rows 200 long; gradient: transposed.
  TensorSet sliced({kRows * 200}, {.second_moment = true});
  std::vector<float> transposed(kCount);
  const Shape shape{kRows, kCols}, slice_strides{200, 1}, transposed_strides{1, kRows};
  for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::SecondMoment}) {
    TensorView& view = sliced.view_of(slot, 0);
    view = TensorView(view.data, Dtype::Float32, shape, slice_strides);
  }
  sliced.view_of(Slot::Grad, 0) =
      TensorView(transposed.data(), Dtype::Float32, shape, transposed_strides);
  for (Index r = 0; r < kRows; ++r) {
    for (Index c = 0; c < kCols; ++c) {
      sliced.param[0][r * 200 + c] = plain.param[0][r * kCols + c];
      transposed[c * kRows + r] = plain.grad(0)[r * kCols + c];
    }
  }
  const auto holes_before = sliced.param[0];
  const MultiTensorPlan plan = sliced.plan();
  ASSERT_TRUE(plan.has_indirect());
  ThreadPool pool(2);
  const StepControl control{.inv_scale = 0.5, .clip_norm = 1, .grad = GradWriteBack::Unscaled};
  for (int t = 0; t < 3; ++t) {
    adam_step(plan, {&group, 1}, control, pool);
    adam_step(plain.plan(), {&group, 1}, control, pool);
  }
  for (Index r = 0; r < kRows; ++r) {
    for (Index c = 0; c < 200; ++c) {
      const float got = sliced.param[0][r * 200 + c];
      ASSERT_EQ(got, c < kCols ? plain.param[0][r * kCols + c] : holes_before[r * 200 + c]);
      if (c >= kCols) continue;
      ASSERT_EQ(transposed[c * kRows + r], plain.grad(0)[r * kCols + c]);
    }
  }
}

TEST(Structure, dense_permuted_layouts_run_without_copies) {
  TensorSet set({6000});
  const Shape shape{20, 300}, columns{1, 20};
  for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::Grad}) {
    TensorView& view = set.view_of(slot, 0);
    view = TensorView(view.data, Dtype::Float32, shape, columns);
  }
  EXPECT_FALSE(set.plan().has_indirect());
}

}  // namespace
}  // namespace hone::kernels
