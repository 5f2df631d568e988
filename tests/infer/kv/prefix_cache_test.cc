// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hone/infer/kv/block_table.h"
#include "tests/infer/kv/layer_groups.h"

namespace hone::infer {
namespace {

PrefixKey one_key(const PrefixSecret&, const PrefixKey&, std::span<const TokenId>) { return {1}; }

std::vector<TokenId> text(Index length, TokenId first = 0) {
  std::vector<TokenId> ids(static_cast<std::size_t>(length));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

class PrefixCacheTest : public testing::Test {
 protected:
  // Computes `blocks` blocks of the text and puts them into the cache; returns the last entry.
  PrefixId put(PrefixCache& cache, std::uint64_t salt, const std::vector<TokenId>& ids,
               Index blocks) {
    BlockTable table(groups);
    EXPECT_TRUE(table.reserve(pool, 32 * blocks, copies));
    table.commit(pool, 32 * blocks);
    PrefixId last = kEmptyPrefix;
    for (Index i = 0; i < blocks; ++i) {
      std::vector<BlockId> held;
      for (Index g = 0; g < table.groups(); ++g) {
        held.push_back(table.blocks(g)[static_cast<std::size_t>(i)]);
      }
      const auto part = std::span(ids).subspan(static_cast<std::size_t>(32 * i), 32);
      last = cache.insert(pool, salt, last, part, held);
    }
    table.release(pool);
    return last;
  }
  static Index matched(const PrefixCache& cache, std::uint64_t salt,
                       const std::vector<TokenId>& ids, Index limit) {
    return static_cast<Index>(cache.match(salt, kEmptyPrefix, ids, 0, limit).size());
  }

  std::vector<LayerGroup> groups{one_head(0), one_head(0)};
  BlockPool pool{{1024, 1024}, 64 * 1024};
  std::vector<BlockCopy> copies;
};

TEST_F(PrefixCacheTest, finds_the_longest_prefix_within_the_limit) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(128);
  put(cache, 0, ids, 3);
  EXPECT_EQ(matched(cache, 0, ids, 128), 3);
  EXPECT_EQ(matched(cache, 0, ids, 95), 2);  // the last token of a prompt is always computed
  EXPECT_EQ(matched(cache, 0, ids, 31), 0);
  std::vector<TokenId> other = ids;
  other[40] = 999;
  EXPECT_EQ(matched(cache, 0, other, 128), 1);
}

TEST_F(PrefixCacheTest, tenants_share_nothing) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(64);
  put(cache, 1, ids, 2);
  EXPECT_EQ(matched(cache, 1, ids, 64), 2);
  EXPECT_EQ(matched(cache, 2, ids, 64), 0);
  put(cache, 2, ids, 1);  // nor does one keep the other from caching the same text
  EXPECT_EQ(matched(cache, 1, ids, 64), 2);
  EXPECT_EQ(matched(cache, 2, ids, 64), 1);
  EXPECT_EQ(cache.size(), 3);
}

TEST_F(PrefixCacheTest, texts_with_equal_keys_are_not_mixed_up) {
  PrefixCache cache(groups, {1, 2}, one_key);
  const std::vector<TokenId> ids = text(64), other = text(64, 500);
  EXPECT_GE(put(cache, 1, ids, 1), 0);
  EXPECT_EQ(put(cache, 1, other, 1), kLostPrefix);  // other tokens
  EXPECT_EQ(put(cache, 2, ids, 1), kLostPrefix);    // another tenant
  EXPECT_EQ(put(cache, 1, ids, 2), kLostPrefix);    // another parent
  EXPECT_EQ(matched(cache, 1, ids, 64), 1);
  EXPECT_EQ(matched(cache, 1, other, 64), 0);
  EXPECT_EQ(matched(cache, 2, ids, 64), 0);
}

TEST_F(PrefixCacheTest, who_computes_the_same_block_later_finds_the_first) {
  PrefixCache cache(groups, {1, 2});
  const PrefixId first = put(cache, 0, text(64), 2);
  const Index used = pool.used_bytes();
  EXPECT_EQ(put(cache, 0, text(64), 2), first);
  EXPECT_EQ(pool.used_bytes(), used);
}

TEST_F(PrefixCacheTest, a_tenant_with_more_than_its_share_loses_first) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> old = text(64), many = text(320, 1000);
  put(cache, 1, old, 2);
  put(cache, 2, many, 10);  // used later, but more than half of the entries
  for (Index left = 9; left >= 3; --left) {
    ASSERT_TRUE(cache.evict_one(pool));
    EXPECT_EQ(matched(cache, 2, many, 320), left);
    EXPECT_EQ(matched(cache, 1, old, 64), 2);
  }
  while (cache.evict_one(pool)) {
  }
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST_F(PrefixCacheTest, evicts_leaves_first_and_the_least_recently_used_of_them) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> a = text(96), b = text(96, 500);
  const PrefixId last_a = put(cache, 0, a, 3);
  put(cache, 0, b, 3);
  cache.touch(last_a);
  for (const Index left_of_b : {2, 1, 0}) {
    ASSERT_TRUE(cache.evict_one(pool));
    EXPECT_EQ(matched(cache, 0, b, 96), left_of_b);
    EXPECT_EQ(matched(cache, 0, a, 96), 3);
  }
  for (const Index left_of_a : {2, 1, 0}) {
    ASSERT_TRUE(cache.evict_one(pool));
    EXPECT_EQ(matched(cache, 0, a, 96), left_of_a);
  }
  EXPECT_FALSE(cache.evict_one(pool));
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST_F(PrefixCacheTest, pinned_entries_and_their_ancestors_stay) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(96);
  const PrefixId last = put(cache, 0, ids, 3);
  const PrefixId second = cache.ancestor(last, 1);
  cache.pin(second);
  EXPECT_TRUE(cache.evict_one(pool));
  EXPECT_FALSE(cache.evict_one(pool));
  EXPECT_EQ(matched(cache, 0, ids, 96), 2);
  cache.unpin(second);
  EXPECT_TRUE(cache.evict_one(pool));
}

TEST_F(PrefixCacheTest, blocks_behind_a_window_go_before_their_entries) {
  groups = {one_head(0), one_head(33)};
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(128);
  const PrefixId last = put(cache, 0, ids, 4);
  cache.pin(last);
  Index evictions = 0;
  while (cache.evict_one(pool)) ++evictions;
  // All four windowed blocks are unused. Without them nothing can be continued.
  EXPECT_EQ(evictions, 4);
  EXPECT_EQ(pool.used_bytes(), 4 * 1024);
  EXPECT_EQ(matched(cache, 0, ids, 128), 0);
  // A sequence that recomputes the last block fills the gap: position 128 reads from 96 on.
  BlockTable table(groups);
  ASSERT_TRUE(table.reserve(pool, 128, copies));
  table.commit(pool, 128);
  const BlockId blocks[] = {table.blocks(0)[3], table.blocks(1)[3]};
  EXPECT_EQ(cache.insert(pool, 0, cache.ancestor(last, 1), std::span(ids).subspan(96, 32), blocks),
            last);
  EXPECT_EQ(matched(cache, 0, ids, 128), 4);
  EXPECT_EQ(matched(cache, 0, ids, 127), 0);
}

TEST_F(PrefixCacheTest, continues_after_a_known_prefix) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(128);
  const PrefixId last = put(cache, 0, ids, 4);
  const auto rest = cache.match(0, cache.ancestor(last, 2), ids, 64, 128);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest.back(), last);
  EXPECT_TRUE(cache.match(0, kLostPrefix, ids, 64, 128).empty());
}

TEST_F(PrefixCacheTest, forgets_a_prefix_and_all_that_leads_to_it) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(96), other = text(96, 500);
  put(cache, 0, other, 3);
  const PrefixId last = put(cache, 0, ids, 3);
  cache.forget(pool, last);
  EXPECT_EQ(matched(cache, 0, ids, 96), 0);
  EXPECT_EQ(matched(cache, 0, other, 96), 3);
  EXPECT_EQ(cache.size(), 3);
  EXPECT_EQ(pool.used_bytes(), 3 * 2 * 1024);
  EXPECT_EQ(pool.cached_bytes(), pool.used_bytes());
  // What comes later finds a cache as if the text had never been there.
  EXPECT_GE(put(cache, 0, ids, 3), 0);
  EXPECT_EQ(matched(cache, 0, ids, 96), 3);
  while (cache.evict_one(pool)) {
  }
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST_F(PrefixCacheTest, forgets_up_to_a_prefix_that_another_text_continues) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(128);
  std::vector<TokenId> branch = ids;
  branch[70] = 999;
  const PrefixId last = put(cache, 0, ids, 4);
  put(cache, 0, branch, 3);
  cache.forget(pool, last);
  EXPECT_EQ(matched(cache, 0, ids, 128), 2);
  EXPECT_EQ(matched(cache, 0, branch, 96), 3);
  cache.forget(pool, cache.match(0, kEmptyPrefix, ids, 0, 64).back());
  EXPECT_EQ(matched(cache, 0, branch, 96), 3) << "the branch still continues it";
  // A tenant's text is no other tenant's.
  const PrefixId mine = put(cache, 1, ids, 4);
  put(cache, 2, ids, 4);
  cache.forget(pool, mine);
  EXPECT_EQ(matched(cache, 1, ids, 128), 0);
  EXPECT_EQ(matched(cache, 2, ids, 128), 4);
}

TEST_F(PrefixCacheTest, does_not_forget_what_is_pinned) {
  PrefixCache cache(groups, {1, 2});
  const std::vector<TokenId> ids = text(128);
  const PrefixId last = put(cache, 0, ids, 4);
  const PrefixId second = cache.ancestor(last, 2);
  cache.pin(second);
  cache.forget(pool, last);
  EXPECT_EQ(matched(cache, 0, ids, 128), 2);
  cache.forget(pool, second);
  EXPECT_EQ(matched(cache, 0, ids, 128), 2);
  EXPECT_FALSE(cache.evict_one(pool));
  cache.unpin(second);
  cache.forget(pool, second);
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(pool.used_bytes(), 0);
  for (const PrefixId none : {kEmptyPrefix, kLostPrefix}) cache.forget(pool, none);
}

TEST_F(PrefixCacheTest, counts_what_it_evicts_and_not_what_it_forgets) {
  PrefixCache cache(groups, {1, 2});
  EXPECT_FALSE(cache.evict_one(pool));
  EXPECT_EQ(cache.evictions(), 0);
  put(cache, 0, text(96), 3);
  const PrefixId other = put(cache, 1, text(64, 500), 2);
  cache.forget(pool, other);
  EXPECT_EQ(cache.evictions(), 0);
  for (const Index count : {1, 2, 3}) {
    EXPECT_TRUE(cache.evict_one(pool));
    EXPECT_EQ(cache.evictions(), count);
  }
  EXPECT_FALSE(cache.evict_one(pool));
  EXPECT_EQ(cache.evictions(), 3);
}

}  // namespace
}  // namespace hone::infer
