// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/infer/kv/block_pool.h"
#include "hone/infer/kv/layer_group.h"

namespace hone::infer {

// The blocks of one sequence: for each group of layers, position p is in blocks(group)[p / 32].
// length() tokens are committed. Blocks that are wholly outside a group's window are released, and
// their entries are kNoBlock.
//
// All functions take the pool that owns the blocks. Call release() before the table is destroyed.
class BlockTable {
 public:
  explicit BlockTable(std::span<const LayerGroup> groups);

  Index length() const { return length_; }
  Index groups() const { return static_cast<Index>(layers_.size()); }
  std::span<const BlockId> blocks(Index group) const { return blocks_[at(group)]; }

  // The bytes of the blocks, shared ones included.
  Index bytes(const BlockPool& pool) const;
  // The bytes that reserve(tokens) takes from the pool.
  Index bytes_to_reserve(const BlockPool& pool, Index tokens) const;
  // Makes positions length() … length() + tokens - 1 writable. A last block that is shared is
  // replaced by a copy, which is appended to `copies`. Returns false, and changes nothing, if the
  // pool has too few bytes.
  bool reserve(BlockPool& pool, Index tokens, std::vector<BlockCopy>& copies);
  // Marks `tokens` reserved positions as filled, releases blocks beyond them (the rollback of
  // drafts) and seals blocks that are full.
  void commit(BlockPool& pool, Index tokens);
  // Releases the blocks that have left their window.
  void trim(BlockPool& pool);
  // Appends 32 tokens that another sequence has committed: one sealed block of each group. The
  // length of the table must be a multiple of 32. Blocks that a sequence of `final_length` tokens
  // no longer needs are left out and may be kNoBlock.
  void append_sealed(BlockPool& pool, std::span<const BlockId> ids, Index final_length);
  // Replaces sealed blocks by equal ones, except where either is kNoBlock.
  void replace_sealed(BlockPool& pool, Index block, std::span<const BlockId> ids);
  // Whether a sequence of `length` tokens could continue from the blocks of this one.
  bool can_fork(Index length) const;
  // Makes this empty table share the first `length` tokens of `parent`. If the last block is open,
  // the first of the two tables to reserve gets a copy. The parent may still write to positions
  // that it has already reserved, because they are after `length`.
  void fork(BlockPool& pool, const BlockTable& parent, Index length);
  // Releases all blocks. May be called repeatedly.
  void release(BlockPool& pool);

 private:
  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }

  std::vector<LayerGroup> layers_;
  std::vector<std::vector<BlockId>> blocks_;  // by group
  std::vector<Index> dropped_;                // by group: number of leading kNoBlock entries
  Index length_ = 0;
};

}  // namespace hone::infer
