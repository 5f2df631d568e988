// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_arena.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hone/core/error.h"
#include "hone/infer/kv/layer_group.h"
#include "tests/support/resident_memory.h"

namespace hone::infer {
namespace {

using hone::test::kCountsMemory;
using hone::test::resident_bytes;

constexpr Index kMiB = Index{1} << 20;

void fill(KvArena& arena, Index group, BlockId id, Index bytes, int value) {
  std::fill_n(arena.block(group, id), bytes, static_cast<std::byte>(value));
}

TEST(KvArena, blocks_do_not_overlap_and_copies_are_whole) {
  BlockPool pool({192, 320}, 4000);
  KvArena arena(pool);
  for (BlockId id = 0; id < pool.capacity(0); ++id) fill(arena, 0, id, 192, id);
  for (BlockId id = 0; id < pool.capacity(1); ++id) fill(arena, 1, id, 320, 100 + id);
  arena.copy({.group = 0, .from = 3, .to = 5});
  for (BlockId id = 0; id < pool.capacity(0); ++id) {
    const auto expected = static_cast<std::byte>(id == 5 ? 3 : id);
    EXPECT_EQ(std::count(arena.block(0, id), arena.block(0, id) + 192, expected), 192);
  }
  EXPECT_EQ(arena.block(1, 4)[319], std::byte{104});
  EXPECT_THROW(arena.block(0, static_cast<BlockId>(pool.capacity(0))), Error);
  EXPECT_THROW(arena.block(0, kNoBlock), Error);
}

// The formula equals what is allocated: blocks are adjacent and nothing lies between them.
TEST(KvArena, a_block_takes_the_bytes_of_the_formula) {
  const LayerGroup groups[] = {
      {.layers = 2, .kv_heads = 3, .key_dim = 24, .value_dim = 16, .dtype = Dtype::Int8}};
  BlockPool pool({kv_block_bytes(groups[0])}, 10 * kv_block_bytes(groups[0]));
  KvArena arena(pool);
  EXPECT_EQ(arena.block(0, 1) - arena.block(0, 0), 2 * 3 * (24 + 16 + 4) * 32);
  EXPECT_EQ(arena.resident_bytes(), kv_bytes(groups, 64));
}

TEST(KvArena, memory_is_taken_at_first_use_and_returned) {
  BlockPool pool({8 * kMiB}, 4096 * kMiB);
  const Index before = resident_bytes();
  KvArena arena(pool);
  EXPECT_TRUE(!kCountsMemory || resident_bytes() - before < kMiB);
  std::vector<BlockId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(pool.allocate(0).value());
  for (const BlockId id : ids) fill(arena, 0, id, 8 * kMiB, 1);
  EXPECT_EQ(arena.resident_bytes(), 64 * kMiB);
  EXPECT_TRUE(!kCountsMemory || resident_bytes() - before >= 64 * kMiB);
  for (int i = 0; i < 6; ++i) pool.release(0, ids[static_cast<std::size_t>(i)]);
  arena.reclaim(pool);
  EXPECT_EQ(arena.resident_bytes(), 16 * kMiB);
  EXPECT_TRUE(!kCountsMemory || resident_bytes() - before < 24 * kMiB);
  EXPECT_EQ(arena.block(0, ids[7])[5], std::byte{1});
}

// The pages between two free blocks go with them, whatever their sizes.
TEST(KvArena, returns_whole_runs_of_free_blocks) {
  const Index bytes = 3 * kMiB + 1000;
  BlockPool pool({bytes}, 64 * bytes);
  const Index before = resident_bytes();
  KvArena arena(pool);
  std::vector<BlockId> ids;
  for (int i = 0; i < 32; ++i) ids.push_back(pool.allocate(0).value());
  for (const BlockId id : ids) fill(arena, 0, id, bytes, 1);
  for (std::size_t i = 0; i < 31; ++i) {  // one by one, each time returning what is free
    pool.release(0, ids[(i * 7) % 31]);
    arena.reclaim(pool);
  }
  EXPECT_EQ(arena.resident_bytes(), bytes);
  EXPECT_TRUE(!kCountsMemory || resident_bytes() - before < bytes + 3 * kMiB);
  EXPECT_EQ(std::count(arena.block(0, 31), arena.block(0, 31) + bytes, std::byte{1}), bytes);
}

TEST(KvArena, keeps_the_blocks_that_were_freed_last) {
  BlockPool pool({kMiB, 2 * kMiB}, 64 * kMiB);
  KvArena arena(pool);
  std::vector<BlockId> small, large;
  for (int i = 0; i < 8; ++i) {
    small.push_back(pool.allocate(0).value());
    large.push_back(pool.allocate(1).value());
    fill(arena, 0, small.back(), kMiB, 1);
    fill(arena, 1, large.back(), 2 * kMiB, 2);
  }
  for (const std::size_t i : {5, 2, 7, 0}) {
    pool.release(0, small[i]);
    pool.release(1, large[i]);
  }
  arena.reclaim(pool, 12 * kMiB);  // exactly what is free
  EXPECT_EQ(arena.resident_bytes(), 24 * kMiB);
  arena.reclaim(pool, 5 * kMiB);  // four of the first group, none of the second
  EXPECT_EQ(arena.resident_bytes(), 12 * kMiB + 4 * kMiB);
  arena.reclaim(pool, 2 * kMiB + 5);
  EXPECT_EQ(arena.resident_bytes(), 12 * kMiB + 2 * kMiB);
  const BlockId next = pool.allocate(0).value();
  EXPECT_EQ(next, 0) << "freed last, and allocated first";
  EXPECT_EQ(arena.block(0, next)[9], std::byte{1}) << "still resident";
  arena.reclaim(pool, -1);
  EXPECT_EQ(arena.resident_bytes(), 13 * kMiB);
  EXPECT_EQ(arena.block(1, 1)[9], std::byte{2});
}

}  // namespace
}  // namespace hone::infer
