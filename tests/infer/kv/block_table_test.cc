// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hone/core/error.h"
#include "hone/core/philox.h"
#include "tests/infer/kv/layer_groups.h"

namespace hone::infer {
namespace {

class BlockTableTest : public testing::Test {
 protected:
  BlockTable grown(Index length) {
    BlockTable table(groups);
    grow(table, length);
    return table;
  }
  void grow(BlockTable& table, Index tokens) {
    ASSERT_TRUE(table.reserve(pool, tokens, copies));
    table.commit(pool, tokens);
    table.trim(pool);
  }

  std::vector<LayerGroup> groups{one_head(0), one_head(40)};
  BlockPool pool{std::vector<Index>(2, 1024), 40 * 1024};
  std::vector<BlockCopy> copies;
};

TEST_F(BlockTableTest, holds_the_blocks_of_the_formula_whatever_the_steps) {
  PhiloxStream random(4);
  for (int trial = 0; trial < 50; ++trial) {
    BlockTable table(groups);
    while (table.length() < 250) {
      grow(table, 1 + random.below(50));
      EXPECT_EQ(pool.used_bytes(), kv_bytes(groups, table.length()));
      EXPECT_EQ(table.bytes(pool), pool.used_bytes());
    }
    table.release(pool);
    table.release(pool);
    EXPECT_EQ(pool.used_bytes(), 0);
  }
  EXPECT_TRUE(copies.empty());
}

TEST_F(BlockTableTest, a_reservation_that_does_not_fit_changes_nothing) {
  BlockTable table = grown(100);
  const Index used = pool.used_bytes();
  EXPECT_FALSE(table.reserve(pool, 2000, copies));
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_EQ(table.length(), 100);
  EXPECT_EQ(table.blocks(0).size(), 4u);
}

TEST_F(BlockTableTest, rejected_drafts_give_their_blocks_back) {
  BlockTable table = grown(31);
  const Index used = pool.used_bytes();
  ASSERT_TRUE(table.reserve(pool, 8, copies));
  EXPECT_EQ(pool.used_bytes(), used + 2 * 1024);
  table.commit(pool, 1);
  EXPECT_EQ(pool.used_bytes(), used);
  EXPECT_FALSE(pool.is_open(0, table.blocks(0)[0]));  // full, thus sealed
  EXPECT_THROW(table.commit(pool, 1), Error);         // nothing is reserved
}

TEST_F(BlockTableTest, a_fork_copies_the_open_block_before_it_writes) {
  BlockTable parent = grown(70);
  BlockTable child(groups);
  child.fork(pool, parent, 66);
  EXPECT_TRUE(std::ranges::equal(child.blocks(0), parent.blocks(0)));
  const BlockId shared = parent.blocks(0)[2];
  ASSERT_TRUE(child.reserve(pool, 1, copies));
  ASSERT_EQ(copies.size(), 2u);  // one for each group
  EXPECT_EQ(copies[0].from, shared);
  EXPECT_EQ(copies[0].to, child.blocks(0)[2]);
  EXPECT_NE(child.blocks(0)[2], shared);
  EXPECT_EQ(child.blocks(0)[1], parent.blocks(0)[1]);
  ASSERT_TRUE(parent.reserve(pool, 1, copies));  // alone again: in place
  EXPECT_EQ(copies.size(), 2u);
  EXPECT_EQ(parent.blocks(0)[2], shared);
}

TEST_F(BlockTableTest, the_last_of_many_forks_keeps_the_block) {
  BlockTable parent = grown(40);
  std::vector<BlockTable> children(3, BlockTable(groups));
  for (BlockTable& child : children) child.fork(pool, parent, 40);
  EXPECT_EQ(pool.used_bytes(), kv_bytes(groups, 40));
  parent.release(pool);
  for (BlockTable& child : children) ASSERT_TRUE(child.reserve(pool, 1, copies));
  EXPECT_EQ(copies.size(), 2u * 2u);
}

TEST_F(BlockTableTest, a_part_of_a_sealed_block_is_copied_too) {
  BlockTable parent = grown(64);
  BlockTable child(groups);
  child.fork(pool, parent, 50);
  parent.release(pool);
  ASSERT_TRUE(child.reserve(pool, 1, copies));
  EXPECT_EQ(copies.size(), 2u);
}

TEST_F(BlockTableTest, a_parent_past_the_window_cannot_be_forked_early) {
  BlockTable parent = grown(200);
  EXPECT_TRUE(parent.can_fork(200));
  EXPECT_FALSE(parent.can_fork(100));  // the window before 100 is gone
  EXPECT_FALSE(parent.can_fork(201));
  BlockTable child(groups);
  EXPECT_THROW(child.fork(pool, parent, 100), Error);
}

TEST_F(BlockTableTest, sealed_blocks_of_others_are_shared_and_left_out_behind_the_window) {
  BlockTable first = grown(96);
  const BlockId second_ids[] = {first.blocks(0)[1], first.blocks(1)[1]};
  const BlockId held[] = {first.blocks(0)[2], first.blocks(1)[2]};
  const BlockId gone[] = {first.blocks(0)[0], kNoBlock};
  BlockTable second(groups);
  second.append_sealed(pool, gone, 96);
  second.append_sealed(pool, second_ids, 96);
  EXPECT_EQ(second.blocks(1)[0], kNoBlock);
  second.append_sealed(pool, held, 96);
  EXPECT_EQ(second.length(), 96);
  EXPECT_EQ(pool.references(0, held[0]), 2);
  second.release(pool);
  EXPECT_EQ(pool.used_bytes(), kv_bytes(groups, 96));
}

}  // namespace
}  // namespace hone::infer
