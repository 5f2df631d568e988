// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hone/core/index.h"

namespace hone::infer {

using BlockId = std::int32_t;  // unique within its group of layers
inline constexpr BlockId kNoBlock = -1;

// A copy of a whole block, to be made before the step that writes to `to`.
struct BlockCopy {
  Index group = 0;
  BlockId from = kNoBlock, to = kNoBlock;
};

// Reference counts of the blocks of the KV cache. It knows block ids, not memory. The groups of
// layers have blocks of different sizes and share one budget of bytes.
//
// A block is *open* until seal() and has one writer: a holder of a shared block must get a copy
// before it writes. A *sealed* block contains only committed tokens, never changes and may be
// shared.
class BlockPool {
 public:
  // Throws Error{InvalidArgument} unless all sizes are positive.
  BlockPool(std::vector<Index> block_bytes, Index budget_bytes);

  Index groups() const { return static_cast<Index>(block_bytes_.size()); }
  Index block_bytes(Index group) const { return block_bytes_[at(group)]; }
  Index budget_bytes() const { return budget_; }
  Index used_bytes() const { return used_; }
  Index free_bytes() const { return budget_ - used_; }
  // The part of used_bytes() to which only the prefix cache refers.
  Index cached_bytes() const { return cached_; }
  // The number of different ids that allocate() may return for the group.
  Index capacity(Index group) const { return budget_ / block_bytes(group); }

  // Returns an open block with one reference, or nullopt if it would exceed the budget. Reuses the
  // most recently freed block first.
  std::optional<BlockId> allocate(Index group);
  // Adds a reference.
  void share(Index group, BlockId id);
  // Drops a reference and sets `id` to kNoBlock. Does nothing if it is kNoBlock already, so that a
  // holder may release twice.
  void release(Index group, BlockId& id);
  void seal(Index group, BlockId id);
  // Adds or drops the reference of the prefix cache. A sealed block may have one such reference.
  void share_with_cache(Index group, BlockId id);
  void release_from_cache(Index group, BlockId& id);

  Index references(Index group, BlockId id) const;  // 0 for free and unknown ids
  // Freed blocks, in the order in which they were freed.
  std::span<const BlockId> free_blocks(Index group) const { return groups_[at(group)].free; }
  bool is_open(Index group, BlockId id) const;
  // Whether its one holder may write to the block in place.
  bool is_writable(Index group, BlockId id) const {
    return is_open(group, id) && references(group, id) == 1;
  }

  // Compares the reference counts with the references of all holders, counts[group][id] (missing
  // entries are 0). Also checks that referenced and free blocks make up all blocks and bytes.
  // Throws Error{Internal} for the first difference.
  void audit(std::span<const std::vector<Index>> counts) const;

 private:
  struct Block {
    Index references = 0;
    bool open = false, cached = false;
  };
  struct Group {
    std::vector<Block> blocks;  // by id
    std::vector<BlockId> free;  // most recently freed last
  };

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  Block& used_block(Index group, BlockId id);
  void change_references(Index group, BlockId id, Index change);

  std::vector<Index> block_bytes_;
  Index budget_ = 0, used_ = 0, cached_ = 0;
  std::vector<Group> groups_;
};

}  // namespace hone::infer
