// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/block_table.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::infer {

BlockTable::BlockTable(std::span<const LayerGroup> groups)
    : layers_(groups.begin(), groups.end()), blocks_(groups.size()), dropped_(groups.size(), 0) {}

Index BlockTable::bytes(const BlockPool& pool) const {
  Index bytes = 0;
  for (Index g = 0; g < groups(); ++g) {
    const auto held = std::ssize(blocks(g)) - std::ranges::count(blocks(g), kNoBlock);
    bytes += held * pool.block_bytes(g);
  }
  return bytes;
}

Index BlockTable::bytes_to_reserve(const BlockPool& pool, Index tokens) const {
  const Index last = ceil_div(length_ + tokens, kBlockTokens);
  const bool is_partial = length_ % kBlockTokens != 0;
  Index bytes = 0;
  for (Index g = 0; g < groups(); ++g) {
    const auto ids = blocks(g);
    Index count = std::max<Index>(0, last - static_cast<Index>(ids.size()));
    if (tokens > 0 && is_partial && !pool.is_writable(g, ids[at(length_ / kBlockTokens)])) ++count;
    bytes += count * pool.block_bytes(g);
  }
  return bytes;
}

bool BlockTable::reserve(BlockPool& pool, Index tokens, std::vector<BlockCopy>& copies) {
  HONE_CHECK(tokens >= 1, "block table", "at least one token", tokens);
  if (bytes_to_reserve(pool, tokens) > pool.free_bytes()) return false;
  const Index last = ceil_div(length_ + tokens, kBlockTokens);
  for (Index g = 0; g < groups(); ++g) {
    std::vector<BlockId>& ids = blocks_[at(g)];
    if (length_ % kBlockTokens != 0) {
      BlockId& open = ids[at(length_ / kBlockTokens)];
      if (!pool.is_writable(g, open)) {
        const BlockId copy = pool.allocate(g).value();
        copies.push_back({.group = g, .from = open, .to = copy});
        pool.release(g, open);
        open = copy;
      }
    }
    while (static_cast<Index>(ids.size()) < last) ids.push_back(pool.allocate(g).value());
  }
  return true;
}

void BlockTable::commit(BlockPool& pool, Index tokens) {
  const Index full_before = length_ / kBlockTokens;
  const auto reserved = static_cast<Index>(blocks(0).size()) * kBlockTokens;
  HONE_CHECK(tokens >= 0 && length_ + tokens <= reserved, "block table",
             concat("at most ", reserved - length_, " reserved positions"), tokens);
  length_ += tokens;
  for (Index g = 0; g < groups(); ++g) {
    for (Index i = full_before; i < length_ / kBlockTokens; ++i) pool.seal(g, blocks(g)[at(i)]);
    std::vector<BlockId>& ids = blocks_[at(g)];
    while (static_cast<Index>(ids.size()) > ceil_div(length_, kBlockTokens)) {
      pool.release(g, ids.back());
      ids.pop_back();
    }
  }
}

void BlockTable::trim(BlockPool& pool) {
  const Index kept = ceil_div(length_, kBlockTokens);
  for (Index g = 0; g < groups(); ++g) {
    std::vector<BlockId>& ids = blocks_[at(g)];
    const Index first = std::min(first_block(layers_[at(g)], length_), kept);
    for (Index& i = dropped_[at(g)]; i < first; ++i) pool.release(g, ids[at(i)]);
  }
}

void BlockTable::append_sealed(BlockPool& pool, std::span<const BlockId> ids, Index final_length) {
  HONE_CHECK(length_ % kBlockTokens == 0, "block table", "a length in whole blocks", length_);
  for (Index g = 0; g < groups(); ++g) {
    const bool is_needed = length_ / kBlockTokens >= first_block(layers_[at(g)], final_length);
    if (is_needed) pool.share(g, ids[at(g)]);
    blocks_[at(g)].push_back(is_needed ? ids[at(g)] : kNoBlock);
  }
  length_ += kBlockTokens;
  trim(pool);
}

void BlockTable::replace_sealed(BlockPool& pool, Index block, std::span<const BlockId> ids) {
  for (Index g = 0; g < groups(); ++g) {
    BlockId& own = blocks_[at(g)][at(block)];
    const BlockId other = ids[at(g)];
    if (own == kNoBlock || other == kNoBlock || own == other) continue;
    pool.share(g, other);
    pool.release(g, own);
    own = other;
  }
}

bool BlockTable::can_fork(Index length) const {
  if (length > length_) return false;
  const Index count = ceil_div(length, kBlockTokens);
  for (Index g = 0; g < groups(); ++g) {
    const Index first = std::min(first_block(layers_[at(g)], length), count);
    const auto needed = blocks(g).subspan(at(first), at(count - first));
    if (std::ranges::find(needed, kNoBlock) != needed.end()) return false;
  }
  return true;
}

void BlockTable::fork(BlockPool& pool, const BlockTable& parent, Index length) {
  HONE_CHECK(length_ == 0 && parent.can_fork(length), "block table",
             "an empty table and a parent that has all blocks", length);
  for (Index g = 0; g < groups(); ++g) {
    const auto shared = parent.blocks(g).first(at(ceil_div(length, kBlockTokens)));
    blocks_[at(g)].assign(shared.begin(), shared.end());
    for (const BlockId id : shared) {
      if (id != kNoBlock) pool.share(g, id);
    }
  }
  length_ = length;
  trim(pool);
}

void BlockTable::release(BlockPool& pool) {
  for (Index g = 0; g < groups(); ++g) {
    for (BlockId& id : blocks_[at(g)]) pool.release(g, id);
    blocks_[at(g)].clear();
    dropped_[at(g)] = 0;
  }
  length_ = 0;
}

}  // namespace hone::infer
