// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/attention.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/trace.h"
#include "hone/kernels/attention/attention_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/attention/attention.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/attention/attention-inl.h"

#if HWY_ONCE
namespace hone::kernels {
namespace {

HWY_EXPORT(load_tile_queries);
HWY_EXPORT(attend_segment);
HWY_EXPORT(merge_states);
HWY_EXPORT(store_tile);

// From this many rows on, tiles of (KV head, 128 query heads) yield enough work items; below,
// segments are items as well.
constexpr Index kFewRows = 9;
constexpr Index kTileRows = 128;  // query heads per prefill tile: 32 KiB of queries at head_dim 64

Index last_segment(const AttentionTile& tile) {
  return tile.limit(tile.rows() - 1) / kKvSegmentTokens;
}

void check(const AttentionArgs& args) {
  const KvLayout& layout = args.cache.layout;
  HONE_CHECK(layout.dtype == Dtype::Float16 || layout.dtype == Dtype::Float32, "attention",
             "an f16 or f32 cache", name_of(layout.dtype));
  HONE_CHECK(args.heads > 0 && layout.kv_heads > 0 && args.heads % layout.kv_heads == 0,
             "attention", concat("a multiple of ", layout.kv_heads, " heads"), args.heads);
  const Index width = args.heads * layout.head_dim;
  HONE_CHECK(args.q_stride >= width && args.out_stride >= width, "attention",
             concat("strides of at least ", width),
             concat(args.q_stride, " and ", args.out_stride));
  const Index needed = ceil_div(args.first_position + args.rows, kKvBlockTokens);
  HONE_CHECK(args.rows >= 0 && args.first_position >= 0 && args.cache.layer < layout.layers &&
                 needed <= static_cast<Index>(args.cache.blocks.size()),
             "attention", concat(needed, " blocks"), args.cache.blocks.size());
}

// The work items are (KV head, segment). Each yields a state, which the caller merges.
void attend_few(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor) {
  const Index dim = args.cache.layout.head_dim, kv_heads = args.cache.layout.kv_heads;
  const AttentionTile shape{.args = &args, .tokens = args.rows};
  const Index rows = shape.rows(), segments = last_segment(shape) + 1;
  const Index state_floats = SoftmaxState::floats(rows, dim);
  const Index scratch_floats = tile_scratch_floats(rows, dim);
  float* states =
      workspace.reserve(kv_heads * segments * state_floats + executor.workers() * scratch_floats);
  float* scratch = states + kv_heads * segments * state_floats;
  const auto state_of = [&](Index item) {
    return SoftmaxState::at(states + item * state_floats, rows, dim);
  };
  const auto tile_of = [&](Index kv_head, int worker) {
    AttentionTile tile = shape;
    tile.kv_head = kv_head;
    tile.scratch = scratch + worker * scratch_floats;
    return tile;
  };
  executor.parallel_for(kv_heads * segments, 1, [&](Index begin, Index end, int worker) {
    for (Index item = begin; item < end; ++item) {
      const AttentionTile tile = tile_of(item / segments, worker);
      HWY_DYNAMIC_DISPATCH(load_tile_queries)(tile);
      HWY_DYNAMIC_DISPATCH(attend_segment)(tile, item % segments, state_of(item));
    }
  });
  for (Index kv_head = 0; kv_head < kv_heads; ++kv_head) {
    const SoftmaxState total = state_of(kv_head * segments);
    for (Index segment = 1; segment < segments; ++segment) {
      HWY_DYNAMIC_DISPATCH(merge_states)(total, state_of(kv_head * segments + segment), rows, dim);
    }
    HWY_DYNAMIC_DISPATCH(store_tile)(tile_of(kv_head, 0), total);
  }
}

// The work items are (KV head, query tile). Each processes its segments in order.
void attend_many(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor) {
  const Index dim = args.cache.layout.head_dim, kv_heads = args.cache.layout.kv_heads;
  const Index group = args.heads / kv_heads;
  const Index tile_tokens = std::clamp<Index>(kTileRows / group, 1, 64);
  const Index tiles = ceil_div(args.rows, tile_tokens), most_rows = tile_tokens * group;
  const Index state_floats = SoftmaxState::floats(most_rows, dim);
  const Index worker_floats = tile_scratch_floats(most_rows, dim) + 2 * state_floats;
  float* memory = workspace.reserve(executor.workers() * worker_floats);
  executor.parallel_for(kv_heads * tiles, 1, [&](Index begin, Index end, int worker) {
    float* own = memory + worker * worker_floats;
    for (Index item = begin; item < end; ++item) {
      const Index first = (tiles - 1 - item / kv_heads) * tile_tokens;  // longest first
      const AttentionTile tile{.args = &args,
                               .kv_head = item % kv_heads,
                               .first_row = first,
                               .tokens = std::min(tile_tokens, args.rows - first),
                               .scratch = own + 2 * state_floats};
      const auto total = SoftmaxState::at(own, tile.rows(), dim);
      const auto part = SoftmaxState::at(own + state_floats, tile.rows(), dim);
      HWY_DYNAMIC_DISPATCH(load_tile_queries)(tile);
      HWY_DYNAMIC_DISPATCH(attend_segment)(tile, 0, total);
      for (Index segment = 1; segment <= last_segment(tile); ++segment) {
        HWY_DYNAMIC_DISPATCH(attend_segment)(tile, segment, part);
        HWY_DYNAMIC_DISPATCH(merge_states)(total, part, tile.rows(), dim);
      }
      HWY_DYNAMIC_DISPATCH(store_tile)(tile, total);
    }
  });
}

// The bytes read from the cache, in whole blocks.
Index kv_bytes(const AttentionArgs& args) {
  return ceil_div(args.first_position + args.rows, kKvBlockTokens) *
         args.cache.layout.layer_bytes();
}

}  // namespace

float* AttentionWorkspace::reserve(Index count) {
  const Index bytes = count * static_cast<Index>(sizeof(float));
  if (bytes > memory_.bytes()) memory_ = Buffer(std::max(bytes, 2 * memory_.bytes()));
  return memory_.as<float>();
}

void attention(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor) {
  HONE_TRACE_ZONE("attention", {"rows", args.rows}, {"heads", args.heads},
                  {"positions", args.first_position + args.rows}, {"kv_bytes", kv_bytes(args)});
  check(args);
  if (args.rows == 0) return;
  if (args.rows < kFewRows) {
    attend_few(args, workspace, executor);
  } else {
    attend_many(args, workspace, executor);
  }
}

}  // namespace hone::kernels
#endif
