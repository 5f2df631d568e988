// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/attention.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

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

constexpr Index kTileRows = 128;  // query heads per tile: 32 KiB of queries at head_dim 64
constexpr Index kFewTokens = 8;   // of a tile that may be divided into segments
constexpr Index kItemsPerWorker = 4;

void check(const AttentionArgs& args) {
  const KvLayout& layout = args.layout;
  HONE_CHECK(layout.dtype == Dtype::Float16 || layout.dtype == Dtype::Float32, "attention",
             "an f16 or f32 cache", name_of(layout.dtype));
  HONE_CHECK(args.heads > 0 && layout.kv_heads > 0 && args.heads % layout.kv_heads == 0,
             "attention", concat("a multiple of ", layout.kv_heads, " heads"), args.heads);
  const Index width = args.heads * layout.head_dim;
  HONE_CHECK(args.q_stride >= width && args.out_stride >= width, "attention",
             concat("strides of at least ", width),
             concat(args.q_stride, " and ", args.out_stride));
  HONE_CHECK(args.layer >= 0 && args.layer < layout.layers, "attention",
             concat("a layer below ", layout.layers), args.layer);
  HONE_CHECK(args.soft_cap >= 0, "attention", "a soft cap of 0 or more", args.soft_cap);
  HONE_CHECK(args.window >= 0, "attention", "a window of 0 or more positions", args.window);
  for (const AttentionSequence& sequence : args.sequences) {
    const Index needed = ceil_div(sequence.first_position + sequence.rows, kKvBlockTokens);
    HONE_CHECK(sequence.rows >= 0 && sequence.first_position >= 0 &&
                   needed <= static_cast<Index>(sequence.blocks.size()),
               "attention", concat(needed, " blocks"), sequence.blocks.size());
  }
}

// The tiles of all sequences. Those that read most come first, so that no worker begins one at the
// end.
std::vector<AttentionTile> tiles_of(const AttentionArgs& args) {
  const Index kv_heads = args.layout.kv_heads;
  const Index tile_tokens = std::clamp<Index>(kTileRows / (args.heads / kv_heads), 1, 64);
  std::vector<AttentionTile> tiles;
  Index row = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    for (Index first = 0; first < sequence.rows; first += tile_tokens) {
      for (Index kv_head = 0; kv_head < kv_heads; ++kv_head) {
        tiles.push_back({.args = &args,
                         .blocks = sequence.blocks,
                         .kv_head = kv_head,
                         .tokens = std::min(tile_tokens, sequence.rows - first),
                         .first_row = row + first,
                         .first_position = sequence.first_position + first});
      }
    }
    row += sequence.rows;
  }
  std::ranges::stable_sort(tiles, std::greater(), [](const AttentionTile& tile) {
    return tile.rows() * (tile.limit(tile.rows() - 1) - tile.start(0));
  });
  return tiles;
}

// The items are segments of tiles. Each yields a state; the caller merges those of a tile.
void attend_segments(std::span<const AttentionTile> tiles, AttentionWorkspace& workspace,
                     Executor& executor) {
  const Index dim = tiles.front().args->layout.head_dim;
  struct Item {
    std::size_t tile;
    Index segment, state;  // offset of its state in floats
  };
  std::vector<Item> items;
  Index floats = 0, scratch_floats = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    for (Index s = tiles[i].first_segment(); s <= tiles[i].last_segment(); ++s) {
      items.push_back({i, s, floats});
      floats += SoftmaxState::floats(tiles[i].rows(), dim);
    }
    scratch_floats = std::max(scratch_floats, tile_scratch_floats(tiles[i].rows(), dim));
  }
  float* states = workspace.reserve(floats + executor.workers() * scratch_floats);
  float* scratch = states + floats;
  const auto state_of = [&](const Item& item) {
    return SoftmaxState::at(states + item.state, tiles[item.tile].rows(), dim);
  };
  executor.parallel_for(std::ssize(items), 1, [&](Index begin, Index end, int worker) {
    for (const Item& item : std::span(items).subspan(static_cast<std::size_t>(begin),
                                                     static_cast<std::size_t>(end - begin))) {
      AttentionTile tile = tiles[item.tile];
      tile.scratch = scratch + worker * scratch_floats;
      HWY_DYNAMIC_DISPATCH(load_tile_queries)(tile);
      HWY_DYNAMIC_DISPATCH(attend_segment)(tile, item.segment, state_of(item));
    }
  });
  for (std::size_t i = 0; i < items.size();) {
    const std::size_t of_tile = items[i].tile;
    const AttentionTile& tile = tiles[of_tile];
    const SoftmaxState total = state_of(items[i]);
    for (++i; i < items.size() && items[i].tile == of_tile; ++i) {
      HWY_DYNAMIC_DISPATCH(merge_states)(total, state_of(items[i]), tile.rows(), dim);
    }
    HWY_DYNAMIC_DISPATCH(store_tile)(tile, total);
  }
}

// The items are tiles. Each processes its segments in order.
void attend_tiles(std::span<const AttentionTile> tiles, AttentionWorkspace& workspace,
                  Executor& executor) {
  const Index dim = tiles.front().args->layout.head_dim;
  Index most_rows = 0;
  for (const AttentionTile& tile : tiles) most_rows = std::max(most_rows, tile.rows());
  const Index state_floats = SoftmaxState::floats(most_rows, dim);
  const Index worker_floats = tile_scratch_floats(most_rows, dim) + 2 * state_floats;
  float* memory = workspace.reserve(executor.workers() * worker_floats);
  executor.parallel_for(std::ssize(tiles), 1, [&](Index begin, Index end, int worker) {
    float* own = memory + worker * worker_floats;
    for (Index item = begin; item < end; ++item) {
      AttentionTile tile = tiles[static_cast<std::size_t>(item)];
      tile.scratch = own + 2 * state_floats;
      const auto total = SoftmaxState::at(own, tile.rows(), dim);
      const auto part = SoftmaxState::at(own + state_floats, tile.rows(), dim);
      HWY_DYNAMIC_DISPATCH(load_tile_queries)(tile);
      HWY_DYNAMIC_DISPATCH(attend_segment)(tile, tile.first_segment(), total);
      for (Index s = tile.first_segment() + 1; s <= tile.last_segment(); ++s) {
        HWY_DYNAMIC_DISPATCH(attend_segment)(tile, s, part);
        HWY_DYNAMIC_DISPATCH(merge_states)(total, part, tile.rows(), dim);
      }
      HWY_DYNAMIC_DISPATCH(store_tile)(tile, total);
    }
  });
}

Index total_rows(const AttentionArgs& args) {
  Index rows = 0;
  for (const AttentionSequence& sequence : args.sequences) rows += sequence.rows;
  return rows;
}

Index total_positions(const AttentionArgs& args) {
  Index positions = 0;
  for (const AttentionSequence& one : args.sequences) positions += one.first_position + one.rows;
  return positions;
}

// The bytes read from the caches, in whole blocks.
Index kv_bytes(const AttentionArgs& args) {
  Index blocks = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    blocks += ceil_div(sequence.first_position + sequence.rows, kKvBlockTokens);
  }
  return blocks * args.layout.layer_bytes();
}

}  // namespace

float* AttentionWorkspace::reserve(Index count) {
  const Index bytes = count * static_cast<Index>(sizeof(float));
  if (bytes > memory_.bytes()) memory_ = Buffer(std::max(bytes, 2 * memory_.bytes()));
  return memory_.as<float>();
}

void attention(const AttentionArgs& args, AttentionWorkspace& workspace, Executor& executor) {
  HONE_TRACE_ZONE("attention", {"rows", total_rows(args)}, {"heads", args.heads},
                  {"positions", total_positions(args)}, {"kv_bytes", kv_bytes(args)});
  check(args);
  std::vector<AttentionTile> tiles = tiles_of(args);
  if (tiles.empty()) return;
  const bool has_few = std::ranges::all_of(
      tiles, [](const AttentionTile& tile) { return tile.tokens <= kFewTokens; });
  if (has_few && std::ssize(tiles) < kItemsPerWorker * executor.workers()) {
    attend_segments(tiles, workspace, executor);
  } else {
    attend_tiles(tiles, workspace, executor);
  }
}

}  // namespace hone::kernels
#endif
