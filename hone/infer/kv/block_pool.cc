// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/block_pool.h"

#include <utility>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

[[noreturn]] void fail_pool(std::string_view expected, std::string_view got) {
  fail(ErrorCategory::Internal, "block pool", expected, got);
}

}  // namespace

BlockPool::BlockPool(std::vector<Index> block_bytes, Index budget_bytes)
    : block_bytes_(std::move(block_bytes)), budget_(budget_bytes), groups_(block_bytes_.size()) {
  HONE_CHECK(!block_bytes_.empty(), "block pool", "at least one group of layers", 0);
  HONE_CHECK(budget_ > 0, "block pool", "a budget of at least one byte", budget_);
  for (const Index bytes : block_bytes_) {
    HONE_CHECK(bytes > 0, "block pool", "blocks of at least one byte", bytes);
    HONE_CHECK(budget_ / bytes < (Index{1} << 31), "block pool", "fewer than 2^31 blocks",
               budget_ / bytes);
  }
}

std::optional<BlockId> BlockPool::allocate(Index group) {
  if (block_bytes(group) > free_bytes()) return std::nullopt;
  Group& g = groups_[at(group)];
  if (g.free.empty()) {
    g.free.push_back(static_cast<BlockId>(g.blocks.size()));
    g.blocks.emplace_back();
  }
  const BlockId id = g.free.back();
  g.free.pop_back();
  g.blocks[at(id)] = {.references = 1, .open = true};
  used_ += block_bytes(group);
  return id;
}

BlockPool::Block& BlockPool::used_block(Index group, BlockId id) {
  if (references(group, id) == 0) fail_pool("a block in use", concat("block ", id));
  return groups_[at(group)].blocks[at(id)];
}

void BlockPool::change_references(Index group, BlockId id, Index change) {
  Block& block = used_block(group, id);
  const Index bytes = block_bytes(group);
  if (block.cached && block.references == 1) cached_ -= bytes;
  block.references += change;
  if (block.cached && block.references == 1) cached_ += bytes;
  if (block.references > 0) return;
  used_ -= bytes;
  groups_[at(group)].free.push_back(id);
}

void BlockPool::share(Index group, BlockId id) { change_references(group, id, 1); }

void BlockPool::release(Index group, BlockId& id) {
  const BlockId held = std::exchange(id, kNoBlock);
  if (held != kNoBlock) change_references(group, held, -1);
}

void BlockPool::seal(Index group, BlockId id) { used_block(group, id).open = false; }

void BlockPool::share_with_cache(Index group, BlockId id) {
  Block& block = used_block(group, id);
  if (block.open || block.cached) fail_pool("a sealed block outside the cache", concat(id));
  share(group, id);
  block.cached = true;
}

void BlockPool::release_from_cache(Index group, BlockId& id) {
  Block& block = used_block(group, id);
  if (!block.cached) fail_pool("a block of the cache", concat("block ", id));
  if (block.references == 1) cached_ -= block_bytes(group);
  block.cached = false;
  release(group, id);
}

Index BlockPool::references(Index group, BlockId id) const {
  const std::vector<Block>& blocks = groups_[at(group)].blocks;
  return id >= 0 && at(id) < blocks.size() ? blocks[at(id)].references : 0;
}

bool BlockPool::is_open(Index group, BlockId id) const {
  return references(group, id) > 0 && groups_[at(group)].blocks[at(id)].open;
}

void BlockPool::audit(std::span<const std::vector<Index>> counts) const {
  Index used = 0, cached = 0;
  for (Index g = 0; g < groups(); ++g) {
    const Group& group = groups_[at(g)];
    const std::vector<Index>& held = counts[at(g)];
    if (held.size() > group.blocks.size()) fail_pool("holders of known blocks", "an unknown id");
    std::vector<Index> is_free(group.blocks.size(), 0);
    for (const BlockId id : group.free) ++is_free[at(id)];
    for (std::size_t id = 0; id < group.blocks.size(); ++id) {
      const Block& block = group.blocks[id];
      const Index expected = id < held.size() ? held[id] : 0;
      if (block.references != expected) {
        fail_pool(concat(expected, " references to block ", id), concat(block.references));
      }
      if (is_free[id] != (block.references == 0)) {
        fail_pool(concat("block ", id, " to be either referenced or free"),
                  concat(is_free[id], " entries in the free list"));
      }
      used += block.references > 0 ? block_bytes(g) : 0;
      cached += block.cached && block.references == 1 ? block_bytes(g) : 0;
    }
  }
  if (used != used_ || used > budget_) fail_pool(concat(used, " bytes in use"), concat(used_));
  if (cached != cached_) fail_pool(concat(cached, " bytes in the cache only"), concat(cached_));
}

}  // namespace hone::infer
