// SPDX-License-Identifier: Apache-2.0
// Which block works on what: every (tensor, chunk) once, in order, however a list is cut into
// structs.
#include "hone/kernels/multi_tensor/cuda/work_list.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "hone/core/error.h"
#include "hone/kernels/multi_tensor/cuda/transport.h"
#include "tests/kernels/kernel_support.h"

namespace hone::kernels::cuda {
namespace {

using Small = StructTable<1, kParam, kGrad, kMomentum, kSecondMoment>;
using Large = StructTable<kLargeScale, kParam, kGrad, kMomentum, kSecondMoment>;

std::vector<TensorEntry> make_entries(const std::vector<Index>& elements) {
  std::vector<TensorEntry> entries(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) {
    entries[i].elements = elements[i];
    for (std::size_t d = 0; d < kDeviceSlots; ++d) {
      entries[i].address[d] = reinterpret_cast<void*>((i + 1) * 4096 + d * 16);
    }
  }
  return entries;
}

template <int kScale, int... kSlots>
void expect_tensor(const StructTable<kScale, kSlots...>& table, int place,
                   const TensorEntry& entry) {
  EXPECT_EQ(table.elements(place), entry.elements);
  const bool same[] = {table.template address<kSlots>(place) == entry.address[kSlots]...};
  for (const bool one : same) EXPECT_TRUE(one);
}

// What the kernels would see, launch by launch, compared with a plain double loop over tensors and
// chunks. Returns the number of launches.
template <class Table>
Index expect_each_block_once(const std::vector<Index>& elements, Index chunk) {
  const WorkList list(elements, chunk);
  const auto entries = make_entries(elements);
  const auto ranges = list.split(Table::kTensors, Table::kBlocks);
  auto table = std::make_unique<Table>();
  std::vector<BlockEntry> seen;
  for (const TableRange& range : ranges) {
    EXPECT_EQ(range.first_block, static_cast<Index>(seen.size()));
    EXPECT_LE(range.tensors, Table::kTensors);
    EXPECT_LE(range.blocks, Table::kBlocks);
    EXPECT_GT(range.blocks, 0);
    fill_table(list, entries, range, *table);
    for (int b = 0; b < range.blocks; ++b) {
      const BlockEntry block = table->block(b);
      const Index tensor = range.first_tensor + block.tensor;
      expect_tensor(*table, block.tensor, entries.at(static_cast<std::size_t>(tensor)));
      seen.push_back({static_cast<std::int32_t>(tensor), block.chunk});
    }
  }
  std::vector<BlockEntry> wanted;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    for (Index c = 0; c * chunk < elements[i]; ++c) {
      wanted.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(c)});
    }
  }
  EXPECT_EQ(seen, wanted);
  EXPECT_EQ(list.all_blocks(), wanted);
  return static_cast<Index>(ranges.size());
}

TEST(WorkList, capacities_follow_from_the_argument_limits) {
  EXPECT_EQ(Small::kTensors, 36);
  EXPECT_EQ(Small::kBlocks, 320);
  EXPECT_EQ(Large::kTensors, 252);
  EXPECT_EQ(Large::kBlocks, 2240);
  EXPECT_LE(sizeof(ListArguments<Small>), 4096u);
  EXPECT_LE(sizeof(ListArguments<Large>), 32764u);
}

TEST(WorkList, one_tensor_or_block_more_than_a_struct_holds_takes_one_launch_more) {
  const auto tensors = [](Index n) { return std::vector<Index>(static_cast<std::size_t>(n), 7); };
  EXPECT_EQ(expect_each_block_once<Small>(tensors(35), 1024), 1);
  EXPECT_EQ(expect_each_block_once<Small>(tensors(36), 1024), 1);
  EXPECT_EQ(expect_each_block_once<Small>(tensors(37), 1024), 2);
  EXPECT_EQ(expect_each_block_once<Large>(tensors(252), 1024), 1);
  EXPECT_EQ(expect_each_block_once<Large>(tensors(253), 1024), 2);
  EXPECT_EQ(expect_each_block_once<Small>({320 * 1024}, 1024), 1);
  EXPECT_EQ(expect_each_block_once<Small>({320 * 1024 + 1}, 1024), 2);
  EXPECT_EQ(expect_each_block_once<Large>({2240 * 1024}, 1024), 1);
  EXPECT_EQ(expect_each_block_once<Large>({1, 2239 * 1024, 1}, 1024), 2);
  EXPECT_EQ(expect_each_block_once<Small>(std::vector<Index>(2000, 1024), 1024), 56);
  EXPECT_EQ(expect_each_block_once<Large>(std::vector<Index>(2000, 1024), 1024), 8);
}

// The reference lecture's table by value crashed one tensor beyond its capacity. Ours follow from
// sizeof, whatever the slots they carry, and one more than fits is one launch more.
template <class Table>
void expect_limits(std::size_t argument_bytes) {
  constexpr Index kTensors = Table::kTensors, kBlocks = Table::kBlocks;
  EXPECT_LE(sizeof(ListArguments<Table>), argument_bytes);
  const auto tensors = [](Index n) { return std::vector<Index>(static_cast<std::size_t>(n), 7); };
  EXPECT_EQ(expect_each_block_once<Table>(tensors(kTensors - 1), 1024), 1);
  EXPECT_EQ(expect_each_block_once<Table>(tensors(kTensors), 1024), 1);
  EXPECT_EQ(expect_each_block_once<Table>(tensors(kTensors + 1), 1024), 2);
  EXPECT_EQ(expect_each_block_once<Table>({(kBlocks - 1) * 1024}, 1024), 1);
  EXPECT_EQ(expect_each_block_once<Table>({kBlocks * 1024}, 1024), 1);
  EXPECT_EQ(expect_each_block_once<Table>({kBlocks * 1024 + 1}, 1024), 2);
}

template <int... kSlots>
void expect_limits_of_both() {
  using SmallTable = StructTable<1, kSlots...>;
  expect_limits<SmallTable>(kSmallArgumentBytes);
  expect_limits<StructTable<kLargeScale, kSlots...>>(kLargeArgumentBytes);
  // One tensor more would not fit beside the arguments that a kernel may have besides.
  const auto of_tensor = sizeof(Index) + SmallTable::kDepth * sizeof(void*);
  EXPECT_GT(kArgumentHeaderBytes + sizeof(SmallTable) + of_tensor, kSmallArgumentBytes);
  EXPECT_EQ(sizeof(SmallTable), SmallTable::kTensors * of_tensor + kSmallBlocks * 8);
}

TEST(WorkList, one_below_at_and_above_the_limits_of_every_struct) {
  expect_limits_of_both<kGrad>();
  expect_limits_of_both<kParam, kGrad>();
  expect_limits_of_both<kParam, kGrad, kMomentum>();
  expect_limits_of_both<kParam, kGrad, kMomentum, kSecondMoment>();
  expect_limits_of_both<kParam, kGrad, kMomentum, kSecondMoment, kExtra>();
  expect_limits_of_both<kParam, kGrad, kMomentum, kSecondMoment, kExtra, kEma>();
  expect_limits_of_both<kParam, kGrad, kMomentum, kSecondMoment, kExtra, kEma, kCopy>();
}

TEST(WorkList, a_tensor_goes_on_in_the_next_struct_with_its_next_chunk) {
  EXPECT_EQ(expect_each_block_once<Small>({5, 1000 * 1024 + 3, 9}, 1024), 4);
  const WorkList list(std::vector<Index>{5, 1000 * 1024 + 3, 9}, 1024);
  const auto ranges = list.split(36, 320);
  EXPECT_EQ(ranges[0], (TableRange{0, 2, 0, 320}));
  EXPECT_EQ(ranges[1], (TableRange{1, 1, 320, 320}));
  EXPECT_EQ(ranges[3], (TableRange{1, 2, 960, 43}));
}

TEST(WorkList, tensors_without_elements_have_no_block) {
  EXPECT_EQ(expect_each_block_once<Small>({}, 1024), 0);
  EXPECT_EQ(expect_each_block_once<Small>({0, 0, 0}, 1024), 0);
  EXPECT_EQ(expect_each_block_once<Small>({0, 3, 0, 0, 1025, 0}, 1024), 1);
  std::vector<Index> far_apart(100, 0);
  far_apart.front() = far_apart.back() = 10;
  EXPECT_EQ(expect_each_block_once<Small>(far_apart, 1024), 2);
}

TEST(WorkList, random_lists_lose_and_repeat_nothing) {
  PhiloxStream random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<Index> elements(random.below(400));
    for (Index& n : elements) n = random.below(4) == 0 ? 0 : random.below(200'000);
    expect_each_block_once<Small>(elements, 1024);
    expect_each_block_once<Large>(elements, 4096);
  }
}

TEST(WorkList, numbers_beyond_32_bits) {
  const Index huge = Index{1} << 40;
  const WorkList list(std::vector<Index>{huge, 3}, 65536);
  EXPECT_EQ(list.blocks(), (Index{1} << 24) + 1);
  const auto error =
      kernels::test::error_of([&] { WorkList(std::vector<Index>{Index{1} << 48}, 65536); });
  EXPECT_NE(error.find("2^31 - 1"), std::string::npos) << error;
}

TEST(ChooseChunk, is_the_largest_with_two_waves_of_blocks) {
  constexpr Index kResident = 132 * 8;
  const auto chunk = [](std::vector<Index> elements) { return choose_chunk(elements, kResident); };
  EXPECT_EQ(chunk({Index{1} << 30}), 65536);
  EXPECT_EQ(chunk({2 * kResident * 65536}), 65536);
  EXPECT_EQ(chunk({2 * kResident * 65536 - 65536}), 32768);
  EXPECT_EQ(chunk({65536}), 1024);
  EXPECT_EQ(chunk(std::vector<Index>(100, 65536)), 2048);
  EXPECT_EQ(chunk(std::vector<Index>(24, 1048576)), 8192);
  EXPECT_EQ(chunk(std::vector<Index>(5000, 7)), 65536);  // small tensors fill the device as well
  EXPECT_EQ(chunk({}), 1024);
}

}  // namespace
}  // namespace hone::kernels::cuda
