// SPDX-License-Identifier: Apache-2.0
// What a plan refuses, in which words, and what it takes although it looks odd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "hone/core/check.h"
#include "hone/kernels/multi_tensor/rule/adam.h"
#include "hone/kernels/multi_tensor/rule/sgd.h"
#include "hone/kernels/multi_tensor/rule/tam.h"
#include "tests/kernels/kernel_support.h"
#include "tests/kernels/multi_tensor/matches.h"
#include "tests/kernels/multi_tensor/tensor_set.h"

namespace hone::kernels {
namespace {

using hone::test::TensorSet;
using test::error_of;
using testing::AllOf;
using testing::HasSubstr;

std::string refusal(TensorSet& set) {
  return error_of([&] { set.plan(); });
}

TEST(PlanRefuses, every_list_of_another_length) {
  TensorSet set({10, 20}, {.second_moment = true, .extra = true});
  struct Case {
    std::span<const TensorView> MultiTensorLists::*list;
    const char* name;
  };
  for (const Case& c :
       {Case{&MultiTensorLists::grad, "grad"}, Case{&MultiTensorLists::momentum, "momentum"},
        Case{&MultiTensorLists::second_moment, "second_moment"},
        Case{&MultiTensorLists::extra, "extra"}}) {
    MultiTensorLists lists = set.lists();
    lists.*c.list = (lists.*c.list).first(1);
    EXPECT_THAT(
        error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
        HasSubstr(concat("[multi_tensor plan] expected 2 tensors in list ", c.name, ", got 1")));
    EXPECT_THAT(error_of([&] { matches(set.plan(), lists); }), HasSubstr(c.name));
  }
  MultiTensorLists lists = set.lists();
  lists.grad = {};  // gradients are no option
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              HasSubstr("2 tensors in list grad, got 0"));
  lists = set.lists();
  lists.group = lists.group.first(1);
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              HasSubstr("2 group numbers, got 1"));
  lists = set.lists();
  lists.step = {};
  EXPECT_THAT(error_of([&] { MultiTensorPlan::build_or_throw(lists); }),
              HasSubstr("2 step counters, got 0"));
}

TEST(PlanRefuses, every_slot_of_another_type_or_shape_or_without_memory) {
  struct Case {
    Slot slot;
    const char *name, *types;
    std::vector<Dtype> others;
  };
  const std::vector<Dtype> wide{Dtype::Float64, Dtype::Int32};
  for (const Case& c :
       {Case{Slot::Param, "param", "f32 or bf16", {Dtype::Float16, Dtype::Int8}},
        Case{Slot::Grad, "grad", "f32 or bf16 or f16", {Dtype::Int8}},
        Case{Slot::Momentum, "momentum", "f32 or bf16 or i8", {Dtype::Float16, Dtype::UInt8}},
        Case{Slot::SecondMoment, "second_moment", "f32 or bf16 or u8", {Dtype::Int8}},
        Case{Slot::Extra, "extra", "f32", {Dtype::BFloat16, Dtype::UInt8}}}) {
    TensorSet set({10, 20}, {.second_moment = true, .extra = true});
    std::vector<Dtype> others = c.others;
    others.insert(others.end(), wide.begin(), wide.end());
    for (const Dtype dtype : others) {
      set.view_of(c.slot, 1).dtype = dtype;
      EXPECT_THAT(refusal(set), HasSubstr(concat(c.types, " for ", c.name, " of tensor 1, got ",
                                                 name_of(dtype))));
    }
    set.set_step(0);
    set.view_of(c.slot, 1).data = nullptr;
    EXPECT_THAT(refusal(set), HasSubstr(concat("memory for ", c.name, " of tensor 1, got none")));
    set.set_step(0);
    if (c.slot == Slot::Param) continue;  // the parameter's shape is the wanted one
    set.view_of(c.slot, 0).shape = Shape{5, 2};
    EXPECT_THAT(refusal(set), HasSubstr(concat(c.name, " of tensor 0 of shape [10], got [5, 2]")));
  }
}

TEST(PlanRefuses, state_in_another_layout_than_its_parameter) {
  const Shape shape{6, 10}, columns{1, 6};
  for (const Slot slot : {Slot::Momentum, Slot::SecondMoment, Slot::Extra}) {
    TensorSet set({60}, {.second_moment = true, .extra = true});
    for (const Slot other :
         {Slot::Param, Slot::Grad, Slot::Momentum, Slot::SecondMoment, Slot::Extra}) {
      TensorView& view = set.view_of(other, 0);
      view = TensorView(view.data, Dtype::Float32, shape);
    }
    EXPECT_EQ(refusal(set), "no error");
    set.view_of(slot, 0).strides = columns;
    EXPECT_THAT(refusal(set), AllOf(HasSubstr("in the layout of param"), HasSubstr("[1, 6]")));
  }
}

TEST(PlanRefuses, parameters_that_overlap_themselves) {
  struct Case {
    Shape shape, strides;
  };
  for (const Case& c : {Case{{10}, {0}},                 // expanded
                        Case{{3, 4}, {4, 0}},            // expanded columns
                        Case{{3, 4}, {3, 1}},            // rows overlap by one
                        Case{{2, 3, 4}, {11, 4, 1}}}) {  // planes overlap by one
    TensorSet set({24}, {.momentum = false});
    TensorView& param = set.view_of(Slot::Param, 0);
    TensorView& grad = set.view_of(Slot::Grad, 0);
    param = TensorView(param.data, Dtype::Float32, c.shape, c.strides);
    grad = TensorView(grad.data, Dtype::Float32, c.shape);
    EXPECT_THAT(refusal(set), AllOf(HasSubstr("param of tensor 0 without internal overlap"),
                                    HasSubstr(to_text(c.strides))));
  }
}

TEST(PlanRefuses, memory_shared_between_any_two_slots_that_are_written) {
  const Slot slots[] = {Slot::Param, Slot::Momentum, Slot::SecondMoment, Slot::Extra};
  for (const Slot a : slots) {
    for (const Slot b : slots) {
      for (const Index shift : {0, 1, 99}) {
        if (a == b && shift == 0) continue;
        TensorSet set({200, 100}, {.second_moment = true, .extra = true});
        set.view_of(b, 1).data = set.view_of(a, 0).as<float>() + shift;
        EXPECT_THAT(refusal(set), HasSubstr("in memory of its own"));
      }
    }
    // Right behind is apart.
    TensorSet set({200, 100}, {.second_moment = true, .extra = true});
    set.view_of(a, 0) = TensorView(set.view_of(a, 0).data, Dtype::Float32, Shape{100});
    for (const Slot slot :
         {Slot::Param, Slot::Grad, Slot::Momentum, Slot::SecondMoment, Slot::Extra})
      set.view_of(slot, 0).shape = Shape{100};
    set.view_of(a, 1).data = set.view_of(a, 0).as<float>() + 100;
    EXPECT_EQ(refusal(set), "no error");
  }
}

TEST(PlanRefuses, a_gradient_inside_written_memory_wherever_it_starts) {
  for (const Slot slot : {Slot::Param, Slot::Momentum}) {
    for (const Index shift : {-50, 0, 50, 99}) {
      TensorSet set({100});
      std::vector<float> ring(400);
      set.view_of(slot, 0).data = ring.data() + 100;
      set.view_of(Slot::Grad, 0).data = ring.data() + 100 + shift;
      EXPECT_THAT(refusal(set), HasSubstr("in memory of its own")) << shift;
    }
  }
}

TEST(PlanTakes, tensors_without_elements_anywhere) {
  TensorSet set({0, 5, 0, 0, 20'000, 0}, {.second_moment = true});
  for (const Index i : {0, 2, 3, 5})
    for (const Slot slot : {Slot::Param, Slot::Grad, Slot::Momentum, Slot::SecondMoment})
      set.view_of(slot, i).data = nullptr;
  const MultiTensorPlan plan = set.plan();
  EXPECT_EQ(plan.elements(), 20'005);
  EXPECT_EQ(plan.chunks(), 3);
  EXPECT_EQ(plan.first_chunk(2), plan.first_chunk(4));
  const AdamGroup group{.lr = 0.5};
  const StepReport report = adam_step(plan, {&group, 1}, {.clip_norm = 1}, serial_executor());
  EXPECT_TRUE(report.stepped);
  EXPECT_EQ(set.step, (std::vector<Index>{1, 1, 1, 1, 1, 1}));
  TensorSet nothing({0, 0});
  EXPECT_EQ(nothing.plan().chunks(), 0);
  const SGDGroup sgd{.momentum = 0.9};
  EXPECT_EQ(sgd_step(nothing.plan(), {&sgd, 1}, {.clip_norm = 1}, serial_executor()).grad_norm, 0);
}

TEST(PlanTakes, scalars_and_odd_strides_of_dimensions_of_one) {
  TensorSet set({1, 12}, {.momentum = false});
  set.view_of(Slot::Param, 0).shape = set.view_of(Slot::Param, 0).strides = Shape{};
  set.view_of(Slot::Grad, 0).shape = set.view_of(Slot::Grad, 0).strides = Shape{};
  TensorView& param = set.view_of(Slot::Param, 1);
  TensorView& grad = set.view_of(Slot::Grad, 1);
  param = TensorView(param.data, Dtype::Float32, Shape{1, 3, 1, 4}, Shape{999, 4, -5, 1});
  grad = TensorView(grad.data, Dtype::Float32, Shape{1, 3, 1, 4}, Shape{0, 4, 77, 1});
  const MultiTensorPlan plan = set.plan();
  EXPECT_FALSE(plan.has_indirect());
  const auto before = set.param;
  const SGDGroup group{.lr = 1};
  sgd_step(plan, {&group, 1}, {}, serial_executor());
  EXPECT_EQ(set.param[0][0], before[0][0] - set.grad(0)[0]);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(set.param[1][i], before[1][i] - grad.as<float>()[i]);
}

TEST(PlanTakes, twenty_thousand_tiny_tensors_as_it_takes_one_large_one) {
  constexpr Index kTensors = 20'000, kEach = 3;
  TensorSet many(std::vector<Index>(kTensors, kEach)), one({kTensors * kEach});
  for (Index i = 0; i < kTensors; ++i) {
    for (Index e = 0; e < kEach; ++e) {
      many.param[i][e] = one.param[0][i * kEach + e];
      many.grad(i)[e] = one.grad(0)[i * kEach + e];
    }
  }
  const MultiTensorPlan plan = many.plan();
  EXPECT_EQ(plan.chunks(), kTensors);
  // Units hold about a chunk's worth, so that no worker takes one tensor at a time.
  EXPECT_LE(plan.units().size(), static_cast<std::size_t>(kTensors * kEach / 8192));
  const SGDGroup group{.lr = 0.25, .momentum = 0.9};
  const StepControl control{.clip_norm = 10};
  const StepReport a = sgd_step(plan, {&group, 1}, control, serial_executor());
  const StepReport b = sgd_step(one.plan(), {&group, 1}, control, serial_executor());
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-9 * b.grad_norm);
  for (Index i = 0; i < kTensors; ++i)
    for (Index e = 0; e < kEach; ++e)
      ASSERT_NEAR(many.param[i][e], one.param[0][i * kEach + e], 1e-7);
}

// Whatever the sizes: chunks cut every tensor without gap or overlap, units cut the chunks, and a
// unit that claims to be whole holds whole tensors.
TEST(PlanStructure, chunks_and_units_partition_random_lists) {
  PhiloxStream random(3);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<Index> sizes;
    const std::uint32_t count = random.below(40);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Index most[] = {3, 500, 16'384, 16'385, 70'000};
      sizes.push_back(random.below(static_cast<std::uint32_t>(most[random.below(5)] + 1)));
    }
    TensorSet set(sizes, {.momentum = false});
    const MultiTensorPlan plan = set.plan();
    const auto chunks = plan.chunk_list();
    std::size_t at = 0;
    for (Index tensor = 0; tensor < plan.tensors(); ++tensor) {
      EXPECT_EQ(plan.first_chunk(tensor), static_cast<Index>(at));
      Index covered = 0;
      for (; at < chunks.size() && chunks[at].tensor == tensor; ++at) {
        ASSERT_EQ(chunks[at].offset, covered);
        ASSERT_EQ(chunks[at].offset % kChunkElements, 0);
        ASSERT_GT(chunks[at].length, 0);
        covered += chunks[at].length;
      }
      ASSERT_EQ(covered, sizes[static_cast<std::size_t>(tensor)]);
    }
    EXPECT_EQ(at, chunks.size());
    Index next = 0;
    for (Index unit = 0; unit < static_cast<Index>(plan.units().size()); ++unit) {
      const ChunkUnit& range = plan.units()[static_cast<std::size_t>(unit)];
      ASSERT_EQ(range.begin, next);
      ASSERT_GT(range.end, range.begin);
      next = range.end;
      Index elements = 0;
      for (Index c = range.begin; c < range.end; ++c) {
        const Chunk& chunk = chunks[static_cast<std::size_t>(c)];
        elements += chunk.length;
        ASSERT_EQ(range.whole, chunk.length == plan.tensor(chunk.tensor).elements);
      }
      ASSERT_LE(elements, kChunkElements);
    }
    EXPECT_EQ(next, plan.chunks());
  }
}

TEST(PlanStructure, slots_are_known_and_absent_ones_have_no_address) {
  TensorSet set({10, 20}, {.momentum = false, .second_moment = true});
  const MultiTensorPlan plan = set.plan();
  for (const Slot slot : {Slot::Param, Slot::Grad, Slot::SecondMoment}) {
    EXPECT_TRUE(plan.has_slot(slot));
    EXPECT_NE(plan.tensor(1).data(static_cast<int>(slot)), nullptr);
  }
  for (const Slot slot : {Slot::Momentum, Slot::Extra}) {
    EXPECT_FALSE(plan.has_slot(slot));
    EXPECT_EQ(plan.tensor(1).data(static_cast<int>(slot)), nullptr);
  }
  TensorSet empty({});
  EXPECT_FALSE(empty.plan().has_slot(Slot::Param));
}

TEST(PlanFollows, a_refused_change_leaves_the_plan_as_it_was) {
  TensorSet set({100, 200});
  MultiTensorPlan plan = set.plan();
  const void* grad = plan.tensor(1).data(static_cast<int>(Slot::Grad));
  set.view_of(Slot::Grad, 1).data = set.param[0].data();
  EXPECT_THAT(error_of([&] { plan.follow_or_throw(set.lists()); }), HasSubstr("shared with"));
  EXPECT_EQ(plan.tensor(1).data(static_cast<int>(Slot::Grad)), grad);
  set.set_step(0);
  EXPECT_TRUE(matches(plan, set.lists()));
}

TEST(PlanFollows, strided_gradients_that_move_are_read_where_they_are_now) {
  TensorSet set({12}, {.momentum = false});
  const Shape shape{3, 4}, columns{1, 3};
  TensorView& param = set.view_of(Slot::Param, 0);
  param = TensorView(param.data, Dtype::Float32, shape);
  std::vector<float> first(12, 1.0f), second(12);
  for (std::size_t i = 0; i < 12; ++i) second[i] = static_cast<float>(i);
  set.view_of(Slot::Grad, 0) = TensorView(first.data(), Dtype::Float32, shape, columns);
  MultiTensorPlan plan = set.plan();
  ASSERT_TRUE(plan.has_indirect());
  set.view_of(Slot::Grad, 0).data = second.data();
  plan.follow_or_throw(set.lists());
  EXPECT_TRUE(matches(plan, set.lists()));
  const auto before = set.param[0];
  const SGDGroup group{.lr = 1};
  sgd_step(plan, {&group, 1}, {}, serial_executor());
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 4; ++c)
      EXPECT_EQ(set.param[0][r * 4 + c], before[r * 4 + c] - second[c * 3 + r]);
}

// The keys of one tensor with its gradient at another address.
std::array<SlotKey, kSlots> keys_with_gradient(const MultiTensorPlan& plan, Index tensor,
                                               void* data) {
  std::array<SlotKey, kSlots> keys = plan.tensor(tensor).keys;
  keys[static_cast<std::size_t>(Slot::Grad)].data = data;
  return keys;
}

TEST(PlanFollows, one_gradient_that_moves_is_read_where_it_is_now) {
  TensorSet set({100, 0, 20'000});
  MultiTensorPlan plan = set.plan();
  std::vector<float> elsewhere(20'000, 3.0f);
  const auto follow = [&](Index tensor, void* data) {
    return plan.follow(tensor, keys_with_gradient(plan, tensor, data));
  };
  EXPECT_TRUE(follow(2, elsewhere.data()));
  EXPECT_TRUE(follow(1, nullptr)) << "nothing to read";
  EXPECT_FALSE(matches(plan, set.lists()));
  set.view_of(Slot::Grad, 1).data = nullptr;
  set.view_of(Slot::Grad, 2).data = elsewhere.data();
  EXPECT_TRUE(matches(plan, set.lists()));
  for (const Slot slot : {Slot::Param, Slot::Momentum}) {
    for (const Index shift : {-99, 0, 19'999}) {
      EXPECT_FALSE(follow(0, set.view_of(slot, 2).as<float>() + shift)) << shift;
    }
  }
  EXPECT_FALSE(follow(0, nullptr));
  EXPECT_TRUE(matches(plan, set.lists())) << "a refusal changes nothing";
}

TEST(PlanFollows, every_slot_and_layout_that_changes_asks_for_a_new_plan) {
  TensorSet set({100}, {.second_moment = true});
  MultiTensorPlan plan = set.plan();
  for (int slot = 0; slot < kSlots; ++slot) {
    auto keys = plan.tensor(0).keys;
    keys[static_cast<std::size_t>(slot)].layout += 1;
    EXPECT_FALSE(plan.follow(0, keys)) << slot;
    if (slot == static_cast<int>(Slot::Grad)) continue;
    keys = plan.tensor(0).keys;
    keys[static_cast<std::size_t>(slot)].data = set.grad(0).data();
    EXPECT_FALSE(plan.follow(0, keys)) << slot;
  }
  EXPECT_TRUE(plan.follow(0, plan.tensor(0).keys));
}

TEST(PlanFollows, counters_that_moved_mean_a_new_plan) {
  TensorSet set({100});
  MultiTensorPlan plan = set.plan();
  std::vector<Index> counters{7};
  MultiTensorLists lists = set.lists();
  lists.step = counters;
  EXPECT_EQ(plan.follow_or_throw(lists), MultiTensorPlan::Change::Rebuilt);
  const SGDGroup group{.momentum = 0.5};
  sgd_step(plan, {&group, 1}, {}, serial_executor());
  EXPECT_EQ(counters[0], 8);
  EXPECT_EQ(set.step[0], 0);
}

}  // namespace
}  // namespace hone::kernels
