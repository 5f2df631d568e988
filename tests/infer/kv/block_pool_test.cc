// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/block_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

TEST(BlockPool, groups_share_one_budget) {
  BlockPool pool({100, 30}, 250);
  EXPECT_EQ(pool.capacity(0), 2);
  EXPECT_EQ(pool.capacity(1), 8);
  BlockId large = pool.allocate(0).value();
  std::vector<BlockId> small;
  while (const auto id = pool.allocate(1)) small.push_back(*id);
  EXPECT_EQ(small.size(), 5u);
  EXPECT_EQ(std::set(small.begin(), small.end()).size(), 5u);
  EXPECT_EQ(pool.free_bytes(), 0);
  EXPECT_FALSE(pool.allocate(0).has_value());
  pool.release(0, large);
  EXPECT_EQ(pool.free_bytes(), 100);
  EXPECT_TRUE(pool.allocate(0).has_value());
}

TEST(BlockPool, a_second_release_by_the_same_holder_does_nothing) {
  BlockPool pool({10}, 100);
  BlockId first = pool.allocate(0).value();
  BlockId second = first;
  pool.share(0, second);
  pool.release(0, first);
  EXPECT_EQ(first, kNoBlock);
  pool.release(0, first);
  EXPECT_EQ(pool.references(0, second), 1);
  BlockId stale = second;
  pool.release(0, second);
  EXPECT_EQ(pool.used_bytes(), 0);
  // A holder that does not exist is a fault of the program, not of the counts.
  EXPECT_THROW(pool.release(0, stale), Error);
  EXPECT_THROW(pool.share(0, 7), Error);
  const std::vector<std::vector<Index>> nobody(1);
  EXPECT_NO_THROW(pool.audit(nobody));
}

TEST(BlockPool, the_block_freed_last_is_used_first) {
  BlockPool pool({10}, 100);
  std::vector<BlockId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(pool.allocate(0).value());
  const BlockId second = ids[1], third = ids[2];
  pool.release(0, ids[1]);
  pool.release(0, ids[2]);
  EXPECT_EQ(pool.allocate(0), third);
  EXPECT_EQ(pool.allocate(0), second);
}

TEST(BlockPool, only_an_open_block_with_one_holder_is_writable) {
  BlockPool pool({10}, 100);
  BlockId id = pool.allocate(0).value();
  EXPECT_TRUE(pool.is_writable(0, id));
  BlockId other = id;
  pool.share(0, other);
  EXPECT_FALSE(pool.is_writable(0, id));
  pool.release(0, other);
  EXPECT_TRUE(pool.is_writable(0, id));
  pool.seal(0, id);
  EXPECT_FALSE(pool.is_writable(0, id));
  EXPECT_EQ(pool.references(0, kNoBlock), 0);
  EXPECT_FALSE(pool.is_open(0, 99));
}

TEST(BlockPool, counts_the_bytes_that_only_the_cache_holds) {
  BlockPool pool({10}, 100);
  BlockId own = pool.allocate(0).value();
  EXPECT_THROW(pool.share_with_cache(0, own), Error);  // open blocks may still change
  pool.seal(0, own);
  BlockId cached = own;
  pool.share_with_cache(0, cached);
  EXPECT_THROW(pool.share_with_cache(0, cached), Error);
  EXPECT_EQ(pool.cached_bytes(), 0);
  pool.release(0, own);
  EXPECT_EQ(pool.cached_bytes(), 10);
  own = cached;
  pool.share(0, own);
  EXPECT_EQ(pool.cached_bytes(), 0);
  pool.release_from_cache(0, cached);
  EXPECT_EQ(pool.cached_bytes(), 0);
  EXPECT_EQ(pool.used_bytes(), 10);
  EXPECT_THROW(pool.release_from_cache(0, own), Error);
}

TEST(BlockPool, the_audit_finds_lost_and_doubled_references) {
  BlockPool pool({10, 20}, 100);
  const BlockId id = pool.allocate(1).value();
  pool.share(1, id);
  std::vector<std::vector<Index>> counts{{}, {2}};
  EXPECT_NO_THROW(pool.audit(counts));
  counts[1][0] = 1;
  EXPECT_THROW(pool.audit(counts), Error);
  counts[1][0] = 3;
  EXPECT_THROW(pool.audit(counts), Error);
  counts = {{1}, {2}};
  EXPECT_THROW(pool.audit(counts), Error);
}

TEST(BlockPool, senseless_sizes_are_refused) {
  EXPECT_THROW(BlockPool({}, 100), Error);
  EXPECT_THROW(BlockPool({0}, 100), Error);
  EXPECT_THROW(BlockPool({10}, 0), Error);
  EXPECT_THROW(BlockPool({1}, Index{1} << 40), Error);
}

}  // namespace
}  // namespace hone::infer
