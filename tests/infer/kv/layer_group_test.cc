// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/layer_group.h"

#include <gtest/gtest.h>

#include <set>

#include "hone/core/error.h"

namespace hone::infer {
namespace {

LayerGroup group_of(Dtype dtype, Index window = 0) {
  return {.layers = 22,
          .kv_heads = 4,
          .key_dim = 64,
          .value_dim = 64,
          .dtype = dtype,
          .window = window};
}

TEST(LayerGroup, sizes_match_published_figures) {
  // TinyLlama 1.1B: 22 layers, 4 KV heads of 64: 22,528 bytes per token in f16.
  EXPECT_EQ(kv_block_bytes(group_of(Dtype::Float16)), 22'528 * 32);
  EXPECT_EQ(kv_block_bytes(group_of(Dtype::Float32)), 2 * 22'528 * 32);
  // int8: half, and two f16 scales per token, layer and head.
  EXPECT_EQ(kv_block_bytes(group_of(Dtype::Int8)), (22'528 / 2 + 22 * 4 * 2 * 2) * 32);
  EXPECT_LT(kv_block_bytes(group_of(Dtype::Int8)), 0.53 * 22'528 * 32);
  LayerGroup uneven = group_of(Dtype::Float16);
  uneven.key_dim = 192;
  uneven.value_dim = 128;
  EXPECT_EQ(kv_block_bytes(uneven), 22 * 4 * (192 + 128) * 2 * 32);
}

TEST(LayerGroup, a_block_is_as_large_as_the_kernels_layout) {
  for (const Dtype dtype : {Dtype::Float16, Dtype::Float32, Dtype::Int8}) {
    for (const Index dim : {8, 64, 80, 256}) {
      const kernels::KvLayout layout{.dtype = dtype, .layers = 3, .kv_heads = 5, .head_dim = dim};
      const LayerGroup group{
          .layers = 3, .kv_heads = 5, .key_dim = dim, .value_dim = dim, .dtype = dtype};
      EXPECT_EQ(kv_block_bytes(group), layout.block_bytes());
    }
  }
}

TEST(LayerGroup, impossible_shapes_are_refused) {
  EXPECT_THROW(kv_block_bytes(group_of(Dtype::BFloat16)), Error);
  for (Index LayerGroup::*size :
       {&LayerGroup::layers, &LayerGroup::kv_heads, &LayerGroup::key_dim, &LayerGroup::value_dim}) {
    for (const Index bad : {Index{0}, Index{-1}, Index{1} << 40}) {
      LayerGroup group = group_of(Dtype::Float16);
      group.*size = bad;
      EXPECT_THROW(kv_block_bytes(group), Error);
    }
  }
  LayerGroup huge = group_of(Dtype::Float32);
  huge.layers = huge.kv_heads = huge.key_dim = Index{1} << 31;
  EXPECT_THROW(kv_block_bytes(huge), Error);
  EXPECT_THROW(kv_block_bytes(group_of(Dtype::Float16, -1)), Error);
}

// Counts the blocks that hold any position which the next token reads, and the open one, to which
// it is written.
Index needed_blocks(const LayerGroup& group, Index length) {
  std::set<Index> blocks;
  if (length % kBlockTokens != 0) blocks.insert(length / kBlockTokens);
  for (Index p = 0; p < length; ++p) {
    const bool is_read = group.window == 0 || p > length - group.window;
    if (is_read) blocks.insert(p / kBlockTokens);
  }
  return static_cast<Index>(blocks.size());
}

TEST(LayerGroup, only_blocks_within_the_window_count) {
  for (const Index window : {0, 1, 2, 31, 32, 33, 64, 100}) {
    const LayerGroup groups[] = {group_of(Dtype::Float16, window)};
    for (Index length = 0; length < 200; ++length) {
      EXPECT_EQ(kv_bytes(groups, length),
                needed_blocks(groups[0], length) * kv_block_bytes(groups[0]))
          << window << " " << length;
    }
  }
}

TEST(LayerGroup, the_peak_covers_every_way_to_grow) {
  for (const Index window : {0, 1, 5, 32, 70}) {
    const LayerGroup groups[] = {group_of(Dtype::Float16, window)};
    const Index block = kv_block_bytes(groups[0]);
    for (const Index step : {1, 16, 50}) {
      const Index peak = kv_peak_bytes(groups, 300, step);
      for (Index length = 0; length + step <= 300; ++length) {
        const Index held = ceil_div(length + step, kBlockTokens) - first_block(groups[0], length);
        EXPECT_LE((held + 1) * block, peak) << window << " " << length << " " << step;
      }
    }
  }
}

}  // namespace
}  // namespace hone::infer
