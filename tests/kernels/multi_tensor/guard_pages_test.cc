// SPDX-License-Identifier: Apache-2.0
// Rules and codecs on memory whose next page must not be touched, with the bits of other memory.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/rule/adagrad.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/lion.h"
#include "hone/kernels/multi_tensor/rule/rmsprop.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::same_bits;
using hone::test::TensorSet;
using hone::test::TensorSetOptions;
using test::GuardedFloats;

struct GuardedRule {
  const char* name;
  TensorSetOptions slots;
  std::function<void(const MultiTensorPlan&)> step;
};

template <class Group, class Step>
std::function<void(const MultiTensorPlan&)> with(const Group& group, const Step& step) {
  return [=](const MultiTensorPlan& plan) {
    step(plan, std::span<const Group>(&group, 1),
         StepControl{.clip_norm = 0.5, .grad = GradWriteBack::Unscaled}, serial_executor());
  };
}

std::function<void(const MultiTensorPlan&)> tam_with(TAMScope scope) {
  return [scope](const MultiTensorPlan& plan) {
    const TAMGroup group{.lr = 0.1, .weight_decay = 0.25};
    const TAMMethod method{.scope = scope, .row_length = 1};
    double s = 0.5, *place = &s;
    tam_step(plan, {&group, 1}, {.of_tensor = {&method, 1}, .correlation = {&place, 1}}, {},
             serial_executor());
  };
}

class GuardPages : public testing::TestWithParam<GuardedRule> {};

TEST_P(GuardPages, every_slot_may_end_with_its_page) {
  const GuardedRule& rule = GetParam();
  constexpr Slot kAll[] = {Slot::Param, Slot::Grad, Slot::Momentum, Slot::SecondMoment,
                           Slot::Extra};
  for (Index n = 1; n <= 100; n += n < 40 ? 1 : 7) {
    TensorSet plain({n}, rule.slots), guarded({n}, rule.slots);
    std::vector<std::unique_ptr<GuardedFloats>> memory;
    const bool used[] = {true, true, rule.slots.momentum, rule.slots.second_moment,
                         rule.slots.extra};
    for (int s = 0; s < 5; ++s) {
      if (!used[s]) continue;
      TensorView& view = guarded.view_of(kAll[s], 0);
      const auto* from = view.as<float>();
      memory.push_back(std::make_unique<GuardedFloats>(std::vector<float>(from, from + n)));
      view.data = memory.back()->data();
    }
    rule.step(plain.plan());
    rule.step(guarded.plan());
    for (int s = 0; s < 5; ++s) {
      if (!used[s]) continue;
      EXPECT_EQ(std::memcmp(plain.view_of(kAll[s], 0).data, guarded.view_of(kAll[s], 0).data,
                            static_cast<std::size_t>(n) * sizeof(float)),
                0)
          << rule.name << " " << n << " slot " << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, GuardPages,
    testing::Values(
        GuardedRule{"sgd", {.momentum = false}, with(SGDGroup{.lr = 0.1}, sgd_step)},
        GuardedRule{"momentum", {}, with(SGDGroup{.momentum = 0.5, .nesterov = true}, sgd_step)},
        GuardedRule{"adam", {.second_moment = true}, with(AdamGroup{}, adam_step)},
        GuardedRule{"amsgrad",
                    {.second_moment = true, .extra = true},
                    with(AdamGroup{.amsgrad = true}, adam_step)},
        GuardedRule{"lion", {}, with(LionGroup{.weight_decay = 0.1}, lion_step)},
        GuardedRule{"adagrad",
                    {.momentum = false, .second_moment = true},
                    with(AdagradGroup{}, adagrad_step)},
        GuardedRule{"rmsprop",
                    {.momentum = false, .second_moment = true},
                    with(RMSpropGroup{}, rmsprop_step)},
        GuardedRule{"rmsprop_centered",
                    {.second_moment = true, .extra = true},
                    with(RMSpropGroup{.momentum = 0.5, .centered = true}, rmsprop_step)},
        GuardedRule{"tam", {}, tam_with(TAMScope::Tensor)},
        GuardedRule{"adatam", {.second_moment = true}, tam_with(TAMScope::Model)}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Bytes that end with their page.
class GuardedBytes {
 public:
  explicit GuardedBytes(Index count)
      : floats_(std::vector<float>(static_cast<std::size_t>(ceil_div(count, 4)))),
        data_(reinterpret_cast<std::byte*>(floats_.data() + ceil_div(count, 4)) - count) {}
  std::byte* data() const { return data_; }

 private:
  GuardedFloats floats_;
  std::byte* data_;
};

TEST(GuardPages, narrow_moments_may_end_with_their_page) {
  for (const Dtype momentum : {Dtype::BFloat16, Dtype::Int8}) {
    const Dtype second = momentum == Dtype::Int8 ? Dtype::UInt8 : momentum;
    for (const Index n : {255, 256, 257, 512, 1000}) {
      const hone::test::MixedTensor tensor{
          .shape = Shape{n}, .momentum = momentum, .second_moment = second};
      hone::test::MixedSet plain({tensor}, {.second_moment = true});
      hone::test::MixedSet guarded({tensor}, {.second_moment = true});
      std::vector<std::unique_ptr<GuardedFloats>> scales;
      std::vector<std::unique_ptr<GuardedBytes>> moments;
      for (const Slot slot : {Slot::Momentum, Slot::SecondMoment}) {
        moments.push_back(std::make_unique<GuardedBytes>(n * bytes_of(momentum)));
        guarded.view_of(slot, 0).data = moments.back()->data();
        const auto blocks = static_cast<std::size_t>(ceil_div(n, kCodeBlock));
        scales.push_back(std::make_unique<GuardedFloats>(std::vector<float>(blocks)));
        guarded.scale_of(slot, 0).data = scales.back()->data();
      }
      const AdamGroup group{.lr = 0.1};
      for (int step = 0; step < 3; ++step) {
        for (hone::test::MixedSet* set : {&plain, &guarded}) {
          adam_step(set->plan(), {&group, 1}, {.rounding_seed = 3}, serial_executor());
        }
      }
      for (const Slot slot : {Slot::Param, Slot::Momentum, Slot::SecondMoment}) {
        EXPECT_EQ(guarded.read(slot, 0), plain.read(slot, 0)) << n << " slot " << int(slot);
      }
    }
  }
}

class GuardedCodec : public testing::TestWithParam<Dtype> {};

TEST_P(GuardedCodec, codes_scales_and_values_may_end_with_their_page) {
  const Dtype dtype = GetParam();
  const StateCodec codec = choose_state_codec();
  for (const Index n : {1, 2, 3, 31, 63, 64, 65, 127, 128, 255, 256, 257, 319, 320, 600}) {
    for (const bool nearest : {false, true}) {
      auto values = test::random_values(n, 3);
      if (dtype == Dtype::UInt8) {
        for (float& value : values) value = std::abs(value);
      }
      const Index blocks = ceil_div(n, kCodeBlock), bytes = n * bytes_of(dtype);
      const GuardedFloats from(values),
          scales(std::vector<float>(static_cast<std::size_t>(blocks)));
      const GuardedFloats back(std::vector<float>(static_cast<std::size_t>(n)));
      const GuardedBytes narrow(bytes);
      const RoundingKey key{7, 3, nearest};
      codec.encode(from.data(), key, {dtype, narrow.data(), scales.data(), n});
      codec.decode({dtype, narrow.data(), scales.data(), n}, back.data());
      std::vector<std::byte> plain(static_cast<std::size_t>(bytes));
      std::vector<float> plain_scales(static_cast<std::size_t>(blocks)), plain_back(values);
      encode_chunk_ref(values.data(), key, {dtype, plain.data(), plain_scales.data(), n});
      decode_chunk_ref({dtype, plain.data(), plain_scales.data(), n}, plain_back.data());
      ASSERT_EQ(std::memcmp(narrow.data(), plain.data(), plain.size()), 0) << n;
      ASSERT_EQ(std::memcmp(back.data(), plain_back.data(), values.size() * sizeof(float)), 0) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GuardedCodec,
                         testing::Values(Dtype::BFloat16, Dtype::Float16, Dtype::Int8,
                                         Dtype::UInt8),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace hone::kernels
