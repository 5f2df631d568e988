// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "hone/core/error.h"
#include "hone/core/philox.h"

namespace hone::infer {
namespace {

kernels::KvLayout small_layout() {
  return {.dtype = Dtype::Float32, .layers = 2, .kv_heads = 3, .head_dim = 8};
}

Index resident_bytes() {
  std::ifstream file("/proc/self/statm");
  Index total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(KvCache, positions_follow_the_tokens_whatever_the_chunks) {
  PhiloxStream random(2);
  for (int trial = 0; trial < 50; ++trial) {
    KvCache cache(small_layout(), 200);
    Index expected = 0;
    while (expected < 200) {
      const Index chunk = std::min<Index>(200 - expected, 1 + random.below(40));
      cache.reserve(chunk);
      EXPECT_EQ(cache.length(), expected);  // reserving writes nothing
      cache.commit(chunk);
      expected += chunk;
      EXPECT_EQ(cache.length(), expected);
      EXPECT_EQ(cache.blocks(), ceil_div(expected, 32));
      EXPECT_EQ(cache.bytes(), cache.blocks() * 32 * 2 * 3 * 2 * 8 * 4);
    }
    EXPECT_THROW(cache.reserve(1), Error);
  }
}

TEST(KvCache, truncating_gives_blocks_back_and_keeps_the_rest_in_place) {
  KvCache cache(small_layout(), 128);
  cache.reserve(100);
  cache.commit(100);
  const std::byte* second = cache.table()[1];
  cache.truncate(33);
  EXPECT_EQ(cache.blocks(), 2);
  EXPECT_EQ(cache.table()[1], second);
  cache.truncate(32);
  EXPECT_EQ(cache.blocks(), 1);
  cache.truncate(0);
  EXPECT_EQ(cache.bytes(), 0);
  EXPECT_THROW(cache.truncate(1), Error);
}

TEST(KvCache, commits_reserved_positions_only) {
  KvCache cache(small_layout(), 64);
  EXPECT_THROW(cache.commit(1), Error);
  cache.reserve(1);
  cache.commit(1);
  EXPECT_THROW(cache.commit(64), Error);
}

TEST(KvCache, layers_of_a_block_do_not_overlap) {
  KvCache cache(small_layout(), 40);
  cache.reserve(40);
  const auto& layout = cache.layout();
  for (Index layer = 0; layer < 2; ++layer) {
    for (Index head = 0; head < 3; ++head) {
      const kernels::KvView view{layout, layer, cache.table()};
      EXPECT_EQ(view.values(1, head) - view.keys(1, head), layout.plane_bytes());
      EXPECT_EQ(view.keys(1, head) - view.blocks[1], (layer * 3 + head) * 2 * layout.plane_bytes());
    }
  }
  EXPECT_EQ(cache.table()[1] - cache.table()[0], layout.block_bytes());
}

// The reference allocates its 4.8 GB before the first token: 12 layers, 12 heads, batch 32, 2048
// positions, head_dim 64, f32.
TEST(KvCache, a_huge_limit_costs_memory_only_for_what_is_used) {
  const kernels::KvLayout layout{
      .dtype = Dtype::Float32, .layers = 12, .kv_heads = 12, .head_dim = 64};
  const Index before = resident_bytes();
  KvCache cache(layout, 32 * 2048);
  cache.reserve(20);
  const std::byte* block = cache.table()[0];
  std::fill_n(const_cast<std::byte*>(block), layout.block_bytes(), std::byte{1});
  cache.commit(20);
  EXPECT_EQ(ceil_div(32 * 2048, 32) * layout.block_bytes(), 4831838208);
  EXPECT_LT(resident_bytes() - before, Index{16} << 20);
}

}  // namespace
}  // namespace hone::infer
