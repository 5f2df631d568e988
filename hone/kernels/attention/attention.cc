// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/attention/attention.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
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
constexpr Index kUnevenPart = 8;  // of the even work of a worker, which segments may cost

void check(const AttentionArgs& args) {
  const KvLayout& layout = args.layout;
  HONE_CHECK(is_kv_dtype(layout.dtype), "attention", "an f16, f32 or i8 cache",
             name_of(layout.dtype));
  HONE_CHECK(args.heads > 0 && layout.kv_heads > 0 && args.heads % layout.kv_heads == 0,
             "attention", concat("a multiple of ", layout.kv_heads, " heads"), args.heads);
  const Index width = args.heads * layout.head_dim;
  HONE_CHECK(args.q_stride >= width && args.out_stride >= width, "attention",
             concat("strides of at least ", width),
             concat(args.q_stride, " and ", args.out_stride));
  HONE_REQUIRE(args.q == nullptr || args.q != args.out, "attention",
               "The output cannot be the queries, because chunks may be computed twice.");
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

Index work_of(const AttentionTile& tile) {
  return tile.rows() * (tile.limit(tile.rows() - 1) - tile.start(0));
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
  std::ranges::stable_sort(tiles, std::greater(), work_of);
  return tiles;
}

// Whether workers would wait for each other if each took the next tile: there are few tiles, or a
// long text is among short ones.
bool are_uneven(const std::vector<AttentionTile>& tiles, Index workers) {
  if (std::ssize(tiles) < kItemsPerWorker * workers) return true;
  std::vector<Index> taken(static_cast<std::size_t>(workers));
  Index all = 0;
  for (const AttentionTile& tile : tiles) {
    *std::ranges::min_element(taken) += work_of(tile);
    all += work_of(tile);
  }
  const Index even = ceil_div(all, workers);
  return std::ranges::max(taken) > even + even / kUnevenPart;
}

// What the chunks of a region read and where they commit. Stragglers share it, so that it outlives
// the call.
struct Plan {
  AttentionArgs args;
  std::vector<AttentionTile> tiles;
  Index most_rows = 0;  // of a tile

  explicit Plan(const AttentionArgs& call) : args(call), tiles(tiles_of(args)) {
    for (const AttentionTile& tile : tiles) most_rows = std::max(most_rows, tile.rows());
  }
  Index dim() const { return args.layout.head_dim; }
  Index state_floats() const { return SoftmaxState::floats(most_rows, dim()); }
  Index scratch_floats() const { return tile_scratch_floats(most_rows, dim()); }
};

// The memory of one chunk: the scratch of its tile after its states.
struct Slot {
  float* states;
  AttentionTile tile;

  Slot(const Plan& plan, std::size_t index, Index states_of_chunk, std::byte* memory)
      : states(reinterpret_cast<float*>(memory)), tile(plan.tiles[index]) {
    tile.scratch = states + states_of_chunk * plan.state_floats();
  }
  static Index bytes(const Plan& plan, Index states_of_chunk) {
    return (states_of_chunk * plan.state_floats() + plan.scratch_floats()) *
           static_cast<Index>(sizeof(float));
  }
};

// The chunks are segments of tiles. Each yields a state; the caller merges those of a tile.
PublishTicket attend_segments(const std::shared_ptr<const Plan>& plan, Executor& executor) {
  struct Item {
    std::size_t tile;
    Index segment, state;  // offset of its state in floats
  };
  const Index dim = plan->dim();
  const auto items = std::make_shared<std::vector<Item>>();
  Index floats = 0;
  for (std::size_t i = 0; i < plan->tiles.size(); ++i) {
    const AttentionTile& tile = plan->tiles[i];
    for (Index s = tile.first_segment(); s <= tile.last_segment(); ++s) {
      items->push_back({i, s, floats});
      floats += SoftmaxState::floats(tile.rows(), dim);
    }
  }
  const Buffer states(floats * static_cast<Index>(sizeof(float)));
  const auto state_of = [&](const Item& item) {
    return SoftmaxState::at(states.as<float>() + item.state, plan->tiles[item.tile].rows(), dim);
  };
  PublishWork work{.chunks = std::ssize(*items), .slot_bytes = Slot::bytes(*plan, 1)};
  work.wait_for_stragglers = plan->args.wait_for_stragglers;
  work.compute = [plan, items, dim](Index chunk, std::byte* memory) {
    const Item& item = (*items)[static_cast<std::size_t>(chunk)];
    const Slot slot(*plan, item.tile, 1, memory);
    HWY_DYNAMIC_DISPATCH(load_tile_queries)(slot.tile);
    HWY_DYNAMIC_DISPATCH(attend_segment)
    (slot.tile, item.segment, SoftmaxState::at(slot.states, slot.tile.rows(), dim));
  };
  // Commits run before the region ends, so they may use what this call owns.
  work.commit = [plan, items, dim, &states](Index chunk, const std::byte* memory) {
    const Item& item = (*items)[static_cast<std::size_t>(chunk)];
    const Index count = SoftmaxState::floats(plan->tiles[item.tile].rows(), dim);
    std::memcpy(states.data() + item.state * static_cast<Index>(sizeof(float)), memory,
                static_cast<std::size_t>(count) * sizeof(float));
  };
  const PublishTicket ticket = executor.parallel_publish(std::move(work));
  for (std::size_t i = 0; i < items->size();) {
    const std::size_t of_tile = (*items)[i].tile;
    const AttentionTile& tile = plan->tiles[of_tile];
    const SoftmaxState total = state_of((*items)[i]);
    for (++i; i < items->size() && (*items)[i].tile == of_tile; ++i) {
      HWY_DYNAMIC_DISPATCH(merge_states)(total, state_of((*items)[i]), tile.rows(), dim);
    }
    HWY_DYNAMIC_DISPATCH(store_tile)(tile, total);
  }
  return ticket;
}

// The chunks are tiles. Each processes its segments in order.
PublishTicket attend_tiles(const std::shared_ptr<const Plan>& plan, Executor& executor) {
  const Index dim = plan->dim();
  PublishWork work{.chunks = std::ssize(plan->tiles), .slot_bytes = Slot::bytes(*plan, 2)};
  work.wait_for_stragglers = plan->args.wait_for_stragglers;
  work.compute = [plan, dim](Index chunk, std::byte* memory) {
    const Slot slot(*plan, static_cast<std::size_t>(chunk), 2, memory);
    const AttentionTile& tile = slot.tile;
    const auto total = SoftmaxState::at(slot.states, tile.rows(), dim);
    const auto part = SoftmaxState::at(slot.states + plan->state_floats(), tile.rows(), dim);
    HWY_DYNAMIC_DISPATCH(load_tile_queries)(tile);
    HWY_DYNAMIC_DISPATCH(attend_segment)(tile, tile.first_segment(), total);
    for (Index s = tile.first_segment() + 1; s <= tile.last_segment(); ++s) {
      HWY_DYNAMIC_DISPATCH(attend_segment)(tile, s, part);
      HWY_DYNAMIC_DISPATCH(merge_states)(total, part, tile.rows(), dim);
    }
  };
  work.commit = [plan, dim](Index chunk, const std::byte* memory) {
    const Slot slot(*plan, static_cast<std::size_t>(chunk), 2, const_cast<std::byte*>(memory));
    HWY_DYNAMIC_DISPATCH(store_tile)
    (slot.tile, SoftmaxState::at(slot.states, slot.tile.rows(), dim));
  };
  return executor.parallel_publish(std::move(work));
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

PublishTicket attention(const AttentionArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("attention", {"rows", total_rows(args)}, {"heads", args.heads},
                  {"positions", total_positions(args)}, {"kv_bytes", kv_bytes(args)});
  check(args);
  const auto plan = std::make_shared<const Plan>(args);
  if (plan->tiles.empty()) return {};
  const bool has_few = std::ranges::all_of(
      plan->tiles, [](const AttentionTile& tile) { return tile.tokens <= kFewTokens; });
  if (has_few && are_uneven(plan->tiles, executor.workers())) {
    return attend_segments(plan, executor);
  }
  return attend_tiles(plan, executor);
}

}  // namespace hone::kernels
#endif
