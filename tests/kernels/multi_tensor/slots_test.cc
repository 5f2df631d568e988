// SPDX-License-Identifier: Apache-2.0
// Slots that are not f32, the moving average and the low-precision copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hone/core/bf16.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::TensorSet;
using test::error_of;
using test::random_values;
using testing::HasSubstr;

// AdamW on one tensor whose slots have the given types.
class NarrowAdam {
 public:
  NarrowAdam(Index n, Dtype param, Dtype grad, Dtype moments)
      : n_(n), types_{param, grad, moments, moments == Dtype::Int8 ? Dtype::UInt8 : moments} {
    for (std::size_t s = 0; s < 4; ++s) {
      slots_[s].resize(static_cast<std::size_t>(n * bytes_of(types_[s])));
      scales_[s].resize(static_cast<std::size_t>(ceil_div(n, kCodeBlock)));
    }
  }
  void write(int slot, const std::vector<float>& values) {
    if (types_[slot] == Dtype::Float32) {
      std::memcpy(slots_[slot].data(), values.data(), values.size() * 4);
    } else {
      encode_chunk(values.data(), {.nearest = true}, chunk(slot));
    }
  }
  std::vector<float> read(int slot) {
    std::vector<float> values(static_cast<std::size_t>(n_));
    if (types_[slot] == Dtype::Float32) {
      std::memcpy(values.data(), slots_[slot].data(), slots_[slot].size());
    } else {
      decode_chunk(chunk(slot), values.data());
    }
    return values;
  }
  StepReport step(const AdamGroup& group, const StepControl& control, Executor& executor) {
    TensorView views[4], scales[4];
    for (int s = 0; s < 4; ++s) {
      views[s] = TensorView(slots_[s].data(), types_[s], Shape{n_});
      scales[s] = TensorView(scales_[s].data(), Dtype::Float32, Shape{ceil_div(n_, kCodeBlock)});
    }
    const std::uint16_t number = 0;
    return adam_step(MultiTensorPlan::build_or_throw({.param = {&views[0], 1},
                                                      .grad = {&views[1], 1},
                                                      .momentum = {&views[2], 1},
                                                      .second_moment = {&views[3], 1},
                                                      .extra = {},
                                                      .group = {&number, 1},
                                                      .step = {&counter_, 1},
                                                      .momentum_scale = {&scales[2], 1},
                                                      .second_moment_scale = {&scales[3], 1}}),
                     {&group, 1}, control, executor);
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const auto& slot : slots_) all.insert(all.end(), slot.begin(), slot.end());
    return all;
  }

 private:
  NarrowChunk chunk(int slot) {
    return {types_[slot], slots_[slot].data(), scales_[slot].data(), n_};
  }

  Index n_, counter_ = 0;
  Dtype types_[4];
  std::vector<std::byte> slots_[4];
  std::vector<float> scales_[4];
};

std::vector<float> gradient(Index n, Index t) {
  return random_values(n, 1000 + static_cast<std::uint64_t>(t));
}

TEST(NarrowSlots, have_the_same_bits_for_any_thread_count) {
  for (const auto& [param, grad, moments] :
       {std::tuple{Dtype::Float32, Dtype::Float32, Dtype::BFloat16},
        std::tuple{Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16},
        std::tuple{Dtype::Float32, Dtype::Float16, Dtype::Int8},
        std::tuple{Dtype::BFloat16, Dtype::BFloat16, Dtype::Int8}}) {
    const Index n = 100'003;
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 3, 8}) {
      ThreadPool pool(threads);
      NarrowAdam adam(n, param, grad, moments);
      adam.write(0, random_values(n, 5));
      for (Index t = 0; t < 5; ++t) {
        adam.write(1, gradient(n, t));
        adam.step({.lr = 0.01}, {.clip_norm = 10, .rounding_seed = 9}, pool);
      }
      if (threads == 1) first = adam.bytes();
      EXPECT_EQ(adam.bytes(), first) << threads;
    }
  }
}

// One step from given state: within one unit of what fp32 slots give.
TEST(NarrowSlots, bf16_storage_is_within_one_unit_of_fp32_per_step) {
  const Index n = 5000;
  NarrowAdam narrow(n, Dtype::BFloat16, Dtype::BFloat16, Dtype::BFloat16);
  NarrowAdam full(n, Dtype::Float32, Dtype::Float32, Dtype::Float32);
  narrow.write(0, random_values(n, 5));
  const AdamGroup group{.lr = 0.01};
  for (Index t = 0; t < 20; ++t) {
    narrow.write(1, gradient(n, t));
    for (int s = 0; s < 4; ++s) full.write(s, narrow.read(s));
    narrow.step(group, {}, serial_executor());
    full.step(group, {}, serial_executor());
    for (const int s : {0, 2, 3}) {
      const auto a = narrow.read(s), b = full.read(s);
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_LE(std::abs(a[i] - b[i]), std::ldexp(std::abs(b[i]), -7)) << s << " at " << i;
      }
    }
  }
}

// At β2 = 0.999 rounding to nearest freezes v, stochastic rounding follows fp64.
TEST(StateInFewBits, a_decaying_second_moment_follows_fp64_in_bf16_and_in_codes) {
  for (const Dtype moments : {Dtype::BFloat16, Dtype::Int8}) {
    const Index n = 10'000;
    NarrowAdam adam(n, Dtype::Float32, Dtype::Float32, moments);
    adam.write(3, std::vector<float>(static_cast<std::size_t>(n), 1.0f));
    adam.write(1, std::vector<float>(static_cast<std::size_t>(n), 0.5f));
    ThreadPool pool(2);
    double exact = 1;
    for (int t = 1; t <= 5000; ++t) {
      adam.step({.lr = 0}, {}, pool);
      exact += 0.001 * (0.25 - exact);
      if (t != 200 && t != 1000 && t != 5000) continue;
      double sum = 0;
      for (const float v : adam.read(3)) sum += v;
      EXPECT_NEAR(sum / static_cast<double>(n) / exact, 1, 0.05) << name_of(moments) << " " << t;
    }
  }
  // What nearest rounding does instead: it never leaves 1.
  std::uint16_t stored = float_to_bf16(1.0f);
  for (int t = 0; t < 5000; ++t) {
    stored = float_to_bf16(bf16_to_float(stored) + 0.001f * (0.25f - bf16_to_float(stored)));
  }
  EXPECT_EQ(bf16_to_float(stored), 1.0f);
}

// Adds |Δθ| of the elements beside the outlier.
void add_steps(const std::vector<float>& before, const std::vector<float>& after,
               hone::test::LargestError& largest) {
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i != 17) largest.add(after[i], before[i]);
  }
}

TEST(StateInFewBits, an_outlier_in_a_block_at_most_doubles_the_steps_of_its_neighbors) {
  const Index n = kCodeBlock;
  NarrowAdam coded(n, Dtype::Float32, Dtype::Float32, Dtype::Int8);
  NarrowAdam full(n, Dtype::Float32, Dtype::Float32, Dtype::Float32);
  hone::test::LargestError of_coded, of_full;
  for (Index t = 0; t < 50; ++t) {
    auto grad = gradient(n, t);
    grad[17] = 1e6f;
    for (NarrowAdam* adam : {&coded, &full}) {
      const auto before = adam->read(0);
      adam->write(1, grad);
      adam->step({.lr = 0.01, .weight_decay = 0}, {}, serial_executor());
      add_steps(before, adam->read(0), adam == &coded ? of_coded : of_full);
    }
    ASSERT_LE(of_coded.error, 2 * of_full.error) << t;
  }
  const auto a = coded.read(0), b = full.read(0);
  EXPECT_NEAR(a[17], b[17], std::abs(b[17]) * 0.1);
}

TEST(NarrowSlots, a_found_inf_changes_no_byte) {
  NarrowAdam adam(1000, Dtype::BFloat16, Dtype::Float16, Dtype::Int8);
  adam.write(0, random_values(1000, 5));
  adam.write(1, gradient(1000, 0));
  adam.step({.lr = 0.01}, {}, serial_executor());
  auto bad = gradient(1000, 1);
  bad[999] = test::kInfinity;
  adam.write(1, bad);
  const auto before = adam.bytes();
  const StepReport report = adam.step({}, {.inv_scale = 0.5}, serial_executor());
  EXPECT_FALSE(report.stepped);
  EXPECT_EQ(report.first_nonfinite_tensor, 0);
  EXPECT_EQ(adam.bytes(), before);
}

TEST(NarrowSlots, refuse_codes_without_scales_and_other_layouts) {
  TensorSet set({600}, {.second_moment = true});
  set.view_of(Slot::Momentum, 0).dtype = Dtype::Int8;
  EXPECT_THAT(error_of([&] { set.plan(); }), HasSubstr("3 f32 scales for momentum of tensor 0"));
  set.set_step(0);
  for (const Slot slot : {Slot::Param, Slot::Grad, Slot::Momentum, Slot::SecondMoment}) {
    TensorView& view = set.view_of(slot, 0);
    view = TensorView(view.data, slot == Slot::Momentum ? Dtype::BFloat16 : Dtype::Float32,
                      Shape{20, 30}, slot == Slot::Grad ? Shape{1, 20} : Shape{30, 1});
  }
  EXPECT_THAT(error_of([&] { set.plan(); }), HasSubstr("dense blocks of one layout for tensor 0"));
}

// Parameter, moving average and copy of SGD on one tensor; strided: transposed.
TEST(FinishPass, moving_average_and_copy_follow_the_new_parameter) {
  for (const bool strided : {false, true}) {
    const Shape shape{90, 300}, strides = strided ? Shape{1, 90} : Shape{300, 1};
    const Index n = 27'000;
    TensorSet set({n}, {.momentum = false});
    std::vector<float> average(set.param[0]);
    std::vector<double> exact(average.begin(), average.end());
    std::vector<std::uint16_t> copy(static_cast<std::size_t>(n));
    const TensorView average_view(average.data(), Dtype::Float32, shape, strides);
    const TensorView copy_view(copy.data(), Dtype::BFloat16, shape, strides);
    for (Index t = 0; t < 10; ++t) {
      set.set_step(t);
      set.view_of(Slot::Param, 0) = {set.param[0].data(), Dtype::Float32, shape, strides};
      set.view_of(Slot::Grad, 0) = {set.grad(0).data(), Dtype::Float32, shape};
      MultiTensorLists lists = set.lists();
      lists.ema = {&average_view, 1};
      if (!strided) lists.copy = {&copy_view, 1};
      const SGDGroup group{.lr = 0.1};
      sgd_step(MultiTensorPlan::build_or_throw(lists), {&group, 1}, {.ema_decay = 0.75},
               serial_executor());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        exact[i] = 0.75 * exact[i] + 0.25 * set.param[0][i];
      }
    }
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(average[i], exact[i], 1e-6) << i;
      if (!strided) {
        ASSERT_EQ(copy[i], float_to_bf16(set.param[0][i]));
      }
    }
  }
}

}  // namespace
}  // namespace hone::kernels
