// SPDX-License-Identifier: Apache-2.0
// The step over tensors of several types and layouts in one call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::MixedSlots;
using hone::test::MixedTensor;

constexpr Dtype kHalf = Dtype::Float16, kBrain = Dtype::BFloat16;

// Every combination that one list may hold, and tails of blocks, vectors and chunks.
std::vector<MixedTensor> zoo() {
  return {
      {Shape{1000}},
      {.shape = Shape{777}, .param = kBrain, .grad = kBrain, .momentum = kBrain},
      {Shape{0}},
      {.shape = Shape{20'001}, .momentum = Dtype::Int8, .second_moment = Dtype::UInt8},
      {.shape = Shape{130, 70}, .grad_strides = {1, 130}},
      {.shape = Shape{1}, .grad = kHalf, .second_moment = kBrain},
      {.shape = Shape{255}, .param = kBrain, .momentum = Dtype::Int8, .second_moment = kBrain},
      {.shape = Shape{60, 300}, .grad = kBrain, .strides = {1, 60}},
      {.shape = Shape{257}, .grad = kHalf, .momentum = kBrain, .second_moment = Dtype::UInt8},
      {Shape{40'000}},
      {.shape = Shape{17'000}, .momentum = kBrain, .second_moment = kBrain},
  };
}
constexpr MixedSlots kAdamSlots{.second_moment = true, .ema = true};

const AdamGroup kGroups[] = {{.lr = 0.01, .weight_decay = 0.1},
                             {.lr = 0.02, .beta1 = 0.5, .decoupled = false, .maximize = true}};

void adam(MixedSet& set, Index t, const StepControl& control, Executor& executor) {
  set.draw_gradients(t);
  adam_step(set.plan(), kGroups, control, executor);
}

TEST(MixedList, has_the_same_bits_for_any_number_of_threads) {
  const StepControl control{
      .inv_scale = 0.5, .clip_norm = 20, .ema_decay = 0.75, .rounding_seed = 77};
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    MixedSet set(zoo(), kAdamSlots);
    for (std::size_t i = 0; i < set.group.size(); ++i) set.group[i] = i % 2;
    for (Index t = 0; t < 5; ++t) adam(set, t, control, pool);
    if (threads == 1) first = set.bytes();
    EXPECT_EQ(set.bytes(), first) << threads;
  }
}

// Random bits come from the key that the caller gives, not from the place in the list.
TEST(MixedList, has_the_same_bits_over_any_split_and_order_of_calls) {
  const StepControl control{.ema_decay = 0.75, .rounding_seed = 77};
  const auto count = static_cast<Index>(zoo().size());
  MixedSet whole(zoo(), kAdamSlots);
  for (Index t = 0; t < 4; ++t) adam(whole, t, control, serial_executor());
  for (const Index cut : {Index{1}, Index{3}, Index{7}, count - 1}) {
    MixedSet parts(zoo(), kAdamSlots);
    for (Index t = 0; t < 4; ++t) {
      parts.draw_gradients(t);
      for (const auto& [begin, end] : {std::pair{cut, count}, std::pair{Index{0}, cut}}) {
        adam_step(MultiTensorPlan::build_or_throw(parts.lists(begin, end)), kGroups, control,
                  serial_executor());
      }
    }
    EXPECT_EQ(parts.bytes(), whole.bytes()) << cut;
    EXPECT_EQ(parts.step, whole.step);
  }
}

// Neither neighbors, nor their groups, nor their types change what a tensor becomes.
TEST(MixedList, f32_tensors_among_narrow_ones_have_the_bits_they_have_alone) {
  MixedSet among(zoo(), kAdamSlots);
  MixedSet alone({{Shape{1000}}, {Shape{40'000}}}, kAdamSlots);
  among.group[9] = alone.group[1] = 1;
  alone.write(Slot::Param, 1, among.read(Slot::Param, 9));
  for (Index t = 0; t < 4; ++t) {
    adam(among, t, {.grad = GradWriteBack::Unscaled}, serial_executor());
    among.draw_gradients(t);
    alone.draw_gradient(0, t);
    alone.write(Slot::Grad, 1, among.read(Slot::Grad, 9));
    adam_step(alone.plan(), kGroups, {}, serial_executor());
  }
  for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::SecondMoment, Slot::Ema}) {
    EXPECT_EQ(alone.read(slot, 0), among.read(slot, 0));
    EXPECT_EQ(alone.read(slot, 1), among.read(slot, 9));
  }
}

TEST(MixedList, the_norm_is_that_of_the_stored_gradients_of_all_types) {
  MixedSet set(zoo(), kAdamSlots);
  double squares = 0;
  for (Index i = 0; i < set.tensors(); ++i) {
    for (const float g : set.read(Slot::Grad, i)) squares += double{g} * g;
  }
  const StepReport report =
      adam_step(set.plan(), kGroups, {.inv_scale = 0.125, .clip_norm = 1}, serial_executor());
  EXPECT_NEAR(report.grad_norm, 0.125 * std::sqrt(squares), 1e-12 * std::sqrt(squares));
  EXPECT_NEAR(report.clip_coef, 1 / (report.grad_norm + 1e-6), 1e-15);
}

TEST(MixedList, a_bad_value_in_any_tensor_leaves_every_byte_of_all) {
  for (const bool checked : {false, true}) {
    MixedSet set(zoo(), kAdamSlots);
    adam(set, 0, {}, serial_executor());
    for (Index i = 0; i < set.tensors(); ++i) {
      if (set.elements(i) == 0) continue;
      auto bad = set.read(Slot::Grad, i);
      bad.back() = i % 2 == 0 ? test::kNan : -test::kInfinity;
      set.write(Slot::Grad, i, bad);
      const auto before = set.bytes();
      const StepControl control{.checked = checked,
                                .grad = GradWriteBack::Zero,
                                .skip_nonfinite = !checked,
                                .rounding_seed = 3};
      const StepReport report = adam_step(set.plan(), kGroups, control, serial_executor());
      EXPECT_FALSE(report.stepped) << i;
      EXPECT_EQ(report.first_nonfinite_tensor, i);
      EXPECT_EQ(set.bytes(), before) << i;
      EXPECT_EQ(set.step, std::vector<Index>(zoo().size(), 1));
      set.draw_gradient(i, 0);
    }
  }
}

TEST(CheckedStep, that_succeeds_has_the_bits_of_a_plain_one_for_every_type) {
  MixedSet plain(zoo(), kAdamSlots), checked(zoo(), kAdamSlots);
  for (Index t = 0; t < 3; ++t) {
    adam(plain, t, {.ema_decay = 0.5, .rounding_seed = 5}, serial_executor());
    adam(checked, t, {.checked = true, .ema_decay = 0.5, .rounding_seed = 5}, serial_executor());
  }
  EXPECT_EQ(checked.bytes(), plain.bytes());
}

// Finite in f32, but between the largest bf16 and infinity: which one it becomes is chance.
TEST(CheckedStep, counts_what_storage_would_turn_into_infinity) {
  const float largest = bf16_to_float(0x7f7f), way = 0x1p119f;  // half a step beyond
  for (const Dtype dtype : {Dtype::Float32, kBrain}) {
    MixedSet set({{.shape = Shape{500}, .param = dtype}}, {.momentum = false});
    std::vector<float> param(500, 1.0f), grad(500, 0.0f);
    param[333] = largest;
    grad[333] = -way;
    set.write(Slot::Param, 0, param);
    set.write(Slot::Grad, 0, grad);
    const SGDGroup group{.lr = 1};
    const auto before = set.bytes();
    const StepReport report =
        sgd_step(set.plan(), {&group, 1}, {.checked = true}, serial_executor());
    EXPECT_EQ(report.stepped, dtype == Dtype::Float32);
    EXPECT_EQ(set.bytes() == before, dtype == kBrain);
  }
}

// ---- what is left in narrow gradients

TEST(WriteBack, unscaled_gradients_are_rounded_once_to_nearest) {
  for (const Dtype dtype : {kBrain, kHalf}) {
    for (const Index n : {1, 64, 65, 2049, 20'000}) {
      MixedSet set({{.shape = Shape{n}, .grad = dtype}}, {.momentum = false});
      set.draw_gradient(0, 1, 3e4f);
      const auto raw = set.read(Slot::Grad, 0);
      const SGDGroup group{.lr = 0.01, .maximize = n % 2 == 0};
      const StepReport report =
          sgd_step(set.plan(), {&group, 1},
                   {.inv_scale = 1.0 / 3, .clip_norm = 5, .grad = GradWriteBack::Unscaled},
                   serial_executor());
      const auto factor = static_cast<float>(1.0 / 3 * report.clip_coef);
      const auto left = set.read(Slot::Grad, 0);
      for (std::size_t i = 0; i < raw.size(); ++i) {
        const float want = dtype == kBrain ? bf16_to_float(float_to_bf16(raw[i] * factor))
                                           : f16_to_float(float_to_f16(raw[i] * factor));
        ASSERT_EQ(left[i], want) << n << " at " << i;
      }
      sgd_step(set.plan(), {&group, 1}, {.grad = GradWriteBack::Zero}, serial_executor());
      EXPECT_EQ(set.read(Slot::Grad, 0), std::vector<float>(raw.size(), 0.0f));
    }
  }
}

TEST(WriteBack, beside_narrow_moments_is_that_beside_f32_ones) {
  for (const Dtype momentum : {kBrain, Dtype::Int8}) {
    const Dtype second = momentum == kBrain ? kBrain : Dtype::UInt8;
    for (const Index n : {255, 256, 20'000}) {
      for (const GradWriteBack left : {GradWriteBack::Unscaled, GradWriteBack::Zero}) {
        MixedSet narrow({{.shape = Shape{n}, .momentum = momentum, .second_moment = second}},
                        kAdamSlots);
        MixedSet full({{.shape = Shape{n}}}, kAdamSlots);
        for (MixedSet* set : {&narrow, &full}) {
          adam(*set, 1, {.inv_scale = 0.25, .clip_norm = 5, .grad = left, .ema_decay = 0.5},
               serial_executor());
        }
        for (const Slot slot : {Slot::Grad, Slot::Param, Slot::Ema}) {
          EXPECT_EQ(narrow.read(slot, 0), full.read(slot, 0)) << n << " slot " << int(slot);
        }
      }
    }
  }
}

TEST(WriteBack, is_left_out_when_not_asked_for_whatever_the_type) {
  MixedSet set(zoo(), kAdamSlots);
  std::vector<std::vector<float>> raw;
  for (Index i = 0; i < set.tensors(); ++i) raw.push_back(set.read(Slot::Grad, i));
  adam_step(set.plan(), kGroups, {.inv_scale = 0.5, .clip_norm = 1}, serial_executor());
  for (Index i = 0; i < set.tensors(); ++i) {
    EXPECT_EQ(set.read(Slot::Grad, i), raw[static_cast<std::size_t>(i)]) << i;
  }
}

// An infinite limit measures; a gradient that is not finite then stays where it is.
TEST(ClipNorm, infinity_measures_and_clips_nothing) {
  for (const float bad : {1.0f, test::kInfinity, test::kNan}) {
    MixedSet measured({{Shape{300}}, {Shape{50}}}), plain({{Shape{300}}, {Shape{50}}});
    for (MixedSet* set : {&measured, &plain}) {
      auto grad = set->read(Slot::Grad, 1);
      grad[7] = bad;
      set->write(Slot::Grad, 1, grad);
      const SGDGroup group{.lr = 0.5, .momentum = 0.9};
      const double limit = set == &measured ? HUGE_VAL : 0;
      const StepReport report =
          sgd_step(set->plan(), {&group, 1}, {.clip_norm = limit}, serial_executor());
      EXPECT_EQ(report.clip_coef, 1);
      if (set == &measured) {
        EXPECT_EQ(std::isfinite(report.grad_norm), bad == 1.0f);
        EXPECT_EQ(report.first_nonfinite_tensor, bad == 1.0f ? -1 : 1);
      }
    }
    EXPECT_EQ(measured.bytes(), plain.bytes()) << bad;
  }
}

TEST(ClipNorm, of_narrow_gradients_equals_clipping_them_beforehand) {
  MixedSet fused({{.shape = Shape{5000}, .grad = kBrain}}), apart({{Shape{5000}}});
  const SGDGroup group{.lr = 0.125, .momentum = 0.5};
  for (Index t = 0; t < 5; ++t) {
    fused.draw_gradient(0, t);
    auto clipped = fused.read(Slot::Grad, 0);
    const StepReport report =
        sgd_step(fused.plan(), {&group, 1}, {.clip_norm = 0.25}, serial_executor());
    ASSERT_LT(report.clip_coef, 1);
    for (float& g : clipped) g *= static_cast<float>(report.clip_coef);
    apart.write(Slot::Grad, 0, clipped);
    sgd_step(apart.plan(), {&group, 1}, {}, serial_executor());
  }
  for (const Slot slot : {Slot::Param, Slot::Momentum}) {
    const auto got = fused.read(slot, 0), want = apart.read(slot, 0);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 5 * test::kEpsilon);
  }
}

}  // namespace
}  // namespace hone::kernels
