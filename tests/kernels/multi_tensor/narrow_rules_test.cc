// SPDX-License-Identifier: Apache-2.0
// Every rule with narrow slots: what one step stores is what it computes in f32, rounded.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "hone/core/thread/thread_pool.h"
#include "tests/kernels/multi_tensor/double_rules_support.h"
#include "tests/kernels/multi_tensor/mixed_set.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::MixedTensor;
using test::DoubleRule;

constexpr Dtype kBrain = Dtype::BFloat16;
constexpr Index kSteps = 4;

std::vector<DoubleRule> all_rules() {
  std::vector<DoubleRule> rules = test::double_rules();
  rules.push_back(test::lion_double_rule());
  return rules;
}

MixedSet make_set(const DoubleRule& rule, Index n, Dtype dtype) {
  return MixedSet({{.shape = Shape{n},
                    .param = dtype,
                    .grad = dtype,
                    .momentum = dtype,
                    .second_moment = dtype}},
                  {.momentum = rule.slots.momentum,
                   .second_moment = rule.slots.second_moment,
                   .extra = rule.slots.extra});
}

std::vector<Slot> slots_of(const DoubleRule& rule) {
  std::vector<Slot> slots{Slot::Param};
  if (rule.slots.momentum) slots.push_back(Slot::Momentum);
  if (rule.slots.second_moment) slots.push_back(Slot::SecondMoment);
  return slots;
}

// A unit in the last place of a bf16 number of this size.
float brain_unit(float value) { return value == 0 ? 0 : std::ldexp(1.0f, std::ilogb(value) - 7); }

// Steps an f32 set from the numbers that the bf16 one holds, and both by the same gradient.
struct Twins {
  Twins(const DoubleRule& rule_in, Index n)
      : rule(rule_in), narrow(make_set(rule, n, kBrain)), full(make_set(rule, n, Dtype::Float32)) {}

  void step(bool compare, Executor& executor) {
    if (!compare) {
      step_one(narrow, narrow_s, executor);
      return;
    }
    full.write(Slot::Grad, 0, narrow.read(Slot::Grad, 0));
    for (const Slot slot : slots_of(rule)) full.write(slot, 0, narrow.read(slot, 0));
    if (rule.slots.extra) full.write(Slot::Extra, 0, narrow.read(Slot::Extra, 0));
    full.step = narrow.step;
    full_s = narrow_s;
    step_one(narrow, narrow_s, executor);
    step_one(full, full_s, executor);
    EXPECT_EQ(full_s, narrow_s) << rule.name;
    for (const Slot slot : slots_of(rule)) expect_neighbors(slot);
  }

 private:
  void step_one(MixedSet& set, double& s, Executor& executor) {
    rule.step(set.plan(), {&s, 1}, {.rounding_seed = 5}, executor);
  }
  void expect_neighbors(Slot slot) {
    const auto got = narrow.read(slot, 0), exact = full.read(slot, 0);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float off = std::abs(got[i] - exact[i]);
      ASSERT_TRUE(off == 0 || off < brain_unit(exact[i]))
          << rule.name << " slot " << int(slot) << " of " << got.size() << " at " << i << " step "
          << narrow.step[0] << ": " << got[i] << " for " << exact[i];
    }
  }

  const DoubleRule& rule;

 public:
  MixedSet narrow, full;
  double narrow_s = 0, full_s = 0;
};

TEST(NarrowRules, bf16_storage_is_within_one_unit_of_f32_in_each_of_100_steps) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : all_rules()) {
    for (const Index n : {0, 1, 7, 1023, 16383, 16384, 16385}) {
      Twins twins(rule, n);
      for (Index t = 0; t < test::kTrainSteps; ++t) {
        if (t < 10) twins.narrow.draw_gradient(0, t);
        twins.step(true, pool);
        if (HasFatalFailure()) return;
      }
      EXPECT_EQ(twins.narrow.step[0], test::kTrainSteps);
    }
  }
}

TEST(NarrowRules, bf16_storage_of_many_chunks_is_within_one_unit) {
  ThreadPool pool(2);
  for (const DoubleRule& rule : all_rules()) {
    Twins twins(rule, 200'003);
    for (Index t = 0; t < 20; ++t) {
      if (t % 10 == 0) twins.narrow.draw_gradient(0, t);
      twins.step(t == 0 || t == 1 || t == 10 || t == 19, pool);
      if (HasFatalFailure()) return;
    }
  }
}

MixedSet set_with_moments(const DoubleRule& rule, Index n, Dtype momentum, Dtype second_moment) {
  return MixedSet({{.shape = Shape{n}, .momentum = momentum, .second_moment = second_moment}},
                  {.momentum = rule.slots.momentum,
                   .second_moment = rule.slots.second_moment,
                   .extra = rule.slots.extra,
                   .ema = true,
                   .copy = true});
}

// Zeros, a number whose square overflows and, at last (NaN has signs that no codec promises), one
// that is infinite, in blocks of their own.
std::vector<float> rough_gradient(Index n, Index t) {
  std::vector<float> g = test::random_values(n, 9 + static_cast<std::uint64_t>(t));
  for (Index i = 300; i < std::min<Index>(n, 600); ++i) g[std::size_t(i)] = 0;
  if (n > 1100) g[1100] = -1e30f;
  if (n > 1500 && t == kSteps - 1) g[1500] = test::kInfinity;
  return g;
}

// A step of `rule` and its moments coded by the codec, in `narrow` what the fused loop left.
void expect_codec_bits(const DoubleRule& rule, Index n, Dtype momentum, Dtype second_moment) {
  MixedSet narrow = set_with_moments(rule, n, momentum, second_moment);
  MixedSet want = set_with_moments(rule, n, momentum, second_moment);
  MixedSet full = set_with_moments(rule, n, Dtype::Float32, Dtype::Float32);
  const StepControl control{.ema_decay = 0.75, .rounding_seed = 5};
  double s = 0, full_s = 0;
  for (Index t = 0; t < kSteps; ++t) {
    for (MixedSet* set : {&narrow, &full, &want}) set->write(Slot::Grad, 0, rough_gradient(n, t));
    for (const Slot slot : slots_of(rule)) full.write(slot, 0, narrow.read(slot, 0));
    rule.step(narrow.plan(), {&s, 1}, control, serial_executor());
    rule.step(full.plan(), {&full_s, 1}, control, serial_executor());
    for (const Slot slot : {Slot::Param, Slot::Extra, Slot::Ema, Slot::Copy}) {
      if (slot != Slot::Extra || rule.slots.extra) want.write(slot, 0, full.read(slot, 0));
    }
    for (const Slot slot : {Slot::Momentum, Slot::SecondMoment}) {
      const bool used = slot == Slot::Momentum ? rule.slots.momentum : rule.slots.second_moment;
      if (!used) continue;
      const std::uint32_t key = mix_rounding_key(5, 0, t + 1, static_cast<int>(slot));
      const TensorView& view = want.view_of(slot, 0);
      encode_chunk(full.read(slot, 0).data(), {.key = key},
                   {view.dtype, view.data, want.scale_of(slot, 0).as<float>(), n});
    }
    ASSERT_TRUE(narrow.bytes() == want.bytes()) << rule.name << " of " << n << " step " << t;
  }
}

TEST(NarrowRules, moments_that_alone_are_narrow_have_the_bits_of_step_and_codec_apart) {
  for (const DoubleRule& rule : all_rules()) {
    if (!rule.slots.momentum && !rule.slots.second_moment) continue;
    for (const Index n : {0, 1, 255, 256, 257, 2100, 16384, 16384 + 512, 33000}) {
      expect_codec_bits(rule, n, Dtype::Int8, Dtype::UInt8);
      expect_codec_bits(rule, n, kBrain, kBrain);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace hone::kernels
