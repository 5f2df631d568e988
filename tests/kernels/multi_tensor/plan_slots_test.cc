// SPDX-License-Identifier: Apache-2.0
// What a plan knows of rows, codes with their scales, moving averages and copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/matches.h"
#include "tests/kernels/multi_tensor/mixed_set.h"

namespace hone::kernels {
namespace {

using hone::test::MixedSet;
using hone::test::MixedTensor;
using test::error_of;
using testing::HasSubstr;

std::string refusal(MixedSet& set) {
  return error_of([&] { set.plan(); });
}

TEST(PlanRows, chunks_hold_whole_rows_of_whatever_length) {
  PhiloxStream random(11);
  const Index fixed[] = {1, 2, 16'383, 16'384, 16'385, 50'000};
  for (int trial = 0; trial < 40; ++trial) {
    const Index length = trial < 6 ? fixed[trial] : 1 + random.below(9000);
    const Index rows = 1 + random.below(static_cast<std::uint32_t>(100'000 / length + 2));
    MixedSet set({{Shape{rows, length}}, {Shape{0, length}}, {Shape{5}}}, {.momentum = false});
    set.row_length = {length, length, 0};
    const MultiTensorPlan plan = set.plan();
    Index next = 0;
    for (const Chunk& chunk : plan.chunk_list().first(plan.first_chunk(1))) {
      ASSERT_EQ(chunk.offset, next);
      ASSERT_EQ(chunk.length % length, 0);
      ASSERT_LE(chunk.length, std::max(length, kChunkElements)) << "no more rows than fit";
      next += chunk.length;
    }
    EXPECT_EQ(next, rows * length);
    EXPECT_EQ(plan.first_chunk(1), plan.first_chunk(2)) << "nothing of the empty one";
    EXPECT_EQ(plan.tensor(0).row_length, length);
    EXPECT_EQ(plan.tensor(2).row_length, 0);
    EXPECT_GE(plan.longest_chunk(), std::min(length, rows * length));
  }
}

TEST(PlanRows, refuse_lengths_that_do_not_divide_and_rows_that_cut_blocks_of_codes) {
  MixedSet set({{Shape{12}}, {.shape = Shape{4, 384}, .momentum = Dtype::Int8}});
  set.row_length = {0, 0};
  EXPECT_EQ(refusal(set), "no error");
  for (const Index length : {5, 13, -3, -12}) {
    set.row_length[0] = length;
    EXPECT_THAT(refusal(set),
                HasSubstr(concat("a row length that divides 12 for tensor 0, got ", length)));
  }
  set.row_length = {12, 384};
  EXPECT_THAT(refusal(set), HasSubstr("rows of a multiple of 256 for codes of tensor 1, got 384"));
  set.row_length = {12, 768};
  EXPECT_EQ(refusal(set), "no error");
  MultiTensorLists lists = set.lists();
  lists.row_length = lists.row_length.first(1);
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              HasSubstr("2 entries in list row_length, got 1"));
}

TEST(PlanRows, take_another_path_where_memory_is_not_in_their_order) {
  for (const Index length : {0, 20}) {
    MixedSet set({{.shape = Shape{300, 20}, .strides = {1, 300}}}, {.momentum = false});
    set.row_length = {length};
    const MultiTensorPlan plan = set.plan();
    EXPECT_EQ(plan.has_indirect(), length > 0);
  }
  MixedSet odd({{.shape = Shape{1, 20}, .strides = {7, 1}}}, {.momentum = false});
  EXPECT_FALSE(odd.plan().has_indirect()) << "the stride of a dimension of size one means nothing";
}

// ---- scales of codes

MixedSet coded() {
  return MixedSet({{.shape = Shape{700}, .momentum = Dtype::Int8, .second_moment = Dtype::UInt8},
                   {.shape = Shape{0}, .momentum = Dtype::Int8, .second_moment = Dtype::UInt8},
                   {.shape = Shape{256}, .momentum = Dtype::Int8, .second_moment = Dtype::UInt8}},
                  {.second_moment = true});
}

TEST(PlanScales, are_wanted_one_per_block_in_one_piece) {
  for (const Slot slot : {Slot::Momentum, Slot::SecondMoment}) {
    const char* const name = slot == Slot::Momentum ? "momentum" : "second_moment";
    MixedSet set = coded();
    set.scale_of(slot, 1) = {};  // nothing to scale
    EXPECT_EQ(refusal(set), "no error");
    const std::string wanted = concat("3 f32 scales for ", name, " of tensor 0, got ");
    std::vector<float> room(16);
    const auto refused = [&](const TensorView& scales) {
      set.scale_of(slot, 0) = scales;
      return refusal(set);
    };
    EXPECT_THAT(refused({}), HasSubstr(wanted + "none"));
    EXPECT_THAT(refused({room.data(), Dtype::Float32, Shape{2}}), HasSubstr(wanted + "2 of f32"));
    EXPECT_THAT(refused({room.data(), Dtype::Float32, Shape{4}}), HasSubstr(wanted + "4 of f32"));
    EXPECT_THAT(refused({room.data(), Dtype::BFloat16, Shape{3}}), HasSubstr("3 of bf16"));
    EXPECT_THAT(refused({room.data(), Dtype::Float32, Shape{3}, Shape{2}}), HasSubstr(wanted));
    EXPECT_EQ(refused({room.data(), Dtype::Float32, Shape{3}}), "no error");
    MultiTensorLists lists = set.lists();
    (slot == Slot::Momentum ? lists.momentum_scale : lists.second_moment_scale) = {};
    EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }), HasSubstr(wanted));
  }
}

TEST(PlanScales, in_memory_of_something_else_are_refused) {
  const auto refused = [](auto&& change) {
    MixedSet set = coded();
    change(set);
    return refusal(set);
  };
  const auto own = HasSubstr("in memory of its own");
  for (const Slot slot : {Slot::Momentum, Slot::SecondMoment}) {
    EXPECT_THAT(refused([&](MixedSet& set) {  // the scales of another tensor
                  set.scale_of(slot, 2).data = set.scale_of(slot, 0).as<float>() + 2;
                }),
                own);
    EXPECT_THAT(refused([&](MixedSet& set) {
                  set.scale_of(slot, 0).data = set.view_of(Slot::Param, 2).as<float>() + 9;
                }),
                own);
    EXPECT_THAT(refused([&](MixedSet& set) {
                  set.scale_of(slot, 0).data = set.view_of(Slot::Grad, 0).as<float>() + 697;
                }),
                own);
    EXPECT_THAT(refused([&](MixedSet& set) {  // its own codes
                  set.scale_of(slot, 2).data = set.view_of(slot, 2).as<std::byte>() + 252;
                }),
                own);
    EXPECT_THAT(refused([&](MixedSet& set) {  // codes that overlap by one byte
                  set.view_of(slot, 2).data = set.view_of(slot, 0).as<std::byte>() + 699;
                }),
                own);
  }
  EXPECT_THAT(refused([](MixedSet& set) {
                set.scale_of(Slot::Momentum, 0).data = set.scale_of(Slot::SecondMoment, 0).data;
              }),
              own);
}

TEST(PlanScales, of_neighbors_may_lie_side_by_side) {
  MixedSet set = coded();
  std::vector<float> scales(8);
  set.scale_of(Slot::Momentum, 0).data = scales.data();
  set.scale_of(Slot::Momentum, 2).data = scales.data() + 3;
  set.scale_of(Slot::SecondMoment, 0).data = scales.data() + 4;
  set.scale_of(Slot::SecondMoment, 2).data = scales.data() + 7;
  EXPECT_EQ(refusal(set), "no error");
}

TEST(PlanScales, a_gradient_that_moves_onto_them_is_refused) {
  MixedSet set = coded();
  std::vector<float> room(900);
  set.scale_of(Slot::Momentum, 0).data = room.data() + 400;
  MultiTensorPlan plan = set.plan();
  set.view_of(Slot::Grad, 0).data = room.data();
  EXPECT_THAT(error_of([&] { plan.follow_or_throw(set.lists()); }),
              HasSubstr("in memory of its own"));
}

TEST(PlanFollows, scales_rows_and_keys_that_change_mean_a_new_plan) {
  MixedSet set({{.shape = Shape{512}, .momentum = Dtype::Int8}});
  set.row_length = {256};
  MultiTensorPlan plan = set.plan();
  const SGDGroup group{.lr = 0.5, .momentum = 0.5};
  std::vector<float> moved(2, -1.0f);
  const void* kept = set.scale_of(Slot::Momentum, 0).data;
  set.scale_of(Slot::Momentum, 0).data = moved.data();
  EXPECT_FALSE(matches(plan, set.lists()));
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Rebuilt);
  sgd_step(plan, {&group, 1}, {}, serial_executor());
  EXPECT_GT(moved[0], 0) << "written where the scales are now";
  EXPECT_EQ(static_cast<const float*>(kept)[0], 0);
  set.row_length[0] = 512;
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Rebuilt);
  EXPECT_EQ(plan.tensor(0).row_length, 512);
  set.rounding_key[0] = 7;
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::Rebuilt);
  EXPECT_EQ(plan.follow_or_throw(set.lists()), MultiTensorPlan::Change::None);
}

// ---- moving averages and copies

TEST(PlanAverageAndCopy, have_their_types_and_memory_of_their_own) {
  const auto refused = [](auto&& change) {
    MixedSet set({{Shape{100}}, {Shape{50}}}, {.ema = true, .copy = true});
    change(set);
    return refusal(set);
  };
  EXPECT_EQ(refused([](MixedSet&) {}), "no error");
  for (const Dtype dtype : {Dtype::Float32, Dtype::Int8, Dtype::Float64}) {
    EXPECT_THAT(refused([&](MixedSet& set) { set.view_of(Slot::Copy, 1).dtype = dtype; }),
                HasSubstr("bf16 or f16 for copy of tensor 1"));
  }
  for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16}) {
    EXPECT_THAT(refused([&](MixedSet& set) { set.view_of(Slot::Ema, 0).dtype = dtype; }),
                HasSubstr("f32 for ema of tensor 0"));
  }
  for (const Slot slot : {Slot::Ema, Slot::Copy}) {
    for (const Slot other : {Slot::Param, Slot::Grad, Slot::Momentum, Slot::Ema, Slot::Copy}) {
      EXPECT_THAT(refused([&](MixedSet& set) {
                    set.view_of(slot, 1).data = set.view_of(other, 0).as<std::byte>() + 196;
                  }),
                  HasSubstr("in memory of its own"));
    }
    EXPECT_THAT(refused([&](MixedSet& set) {
                  set.view_of(slot, 0).shape = Shape{10, 10};
                }),
                HasSubstr("of tensor 0 of shape [100]"));
  }
}

TEST(PlanAverageAndCopy, half_copies_are_the_new_parameter_rounded_to_nearest) {
  for (const Dtype dtype : {Dtype::BFloat16, Dtype::Float16}) {
    for (const Index n : {1, 63, 64, 65, 2047, 20'000}) {
      MixedSet set({{Shape{n}}}, {.momentum = false, .copy = true, .copy_type = dtype});
      auto wild = test::random_values(n, 3);
      for (std::size_t i = 0; i < wild.size(); ++i)
        wild[i] = std::ldexp(wild[i], static_cast<int>(i % 40) - 24);
      set.write(Slot::Param, 0, wild);
      const SGDGroup group{.lr = 0x1p-8};
      sgd_step(set.plan(), {&group, 1}, {.rounding_seed = 5}, serial_executor());
      const auto param = set.read(Slot::Param, 0), copy = set.read(Slot::Copy, 0);
      for (std::size_t i = 0; i < param.size(); ++i) {
        const float want = dtype == Dtype::BFloat16 ? bf16_to_float(float_to_bf16(param[i]))
                                                    : f16_to_float(float_to_f16(param[i]));
        ASSERT_EQ(copy[i], want) << n << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hone::kernels
