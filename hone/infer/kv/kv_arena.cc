// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "hone/core/check.h"

namespace hone::infer {
namespace {

constexpr Index kPage = 4096;

// Gives back the whole pages within these bytes; they read as zero afterwards.
void discard_pages(std::byte* data, Index bytes) {
  const auto start = static_cast<Index>(reinterpret_cast<std::uintptr_t>(data));
  const Index begin = round_up(start, kPage), end = (start + bytes) / kPage * kPage;
  if (begin >= end) return;
  ::madvise(data + (begin - start), static_cast<std::size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace

KvArena::KvArena(const BlockPool& pool) {
  for (Index g = 0; g < pool.groups(); ++g) {
    const Index bytes = pool.block_bytes(g);
    regions_.push_back({.block_bytes = bytes,
                        .memory = Buffer(bytes * pool.capacity(g)),
                        .resident = std::vector<bool>(static_cast<std::size_t>(pool.capacity(g)))});
  }
}

std::byte* KvArena::block(Index group, BlockId id) {
  Region& region = regions_[static_cast<std::size_t>(group)];
  HONE_CHECK(id >= 0 && static_cast<std::size_t>(id) < region.resident.size(), "kv arena",
             concat("a block below ", region.resident.size()), id);
  if (!region.resident[static_cast<std::size_t>(id)]) {
    region.resident[static_cast<std::size_t>(id)] = true;
    resident_bytes_ += region.block_bytes;
  }
  return region.memory.data() + id * region.block_bytes;
}

void KvArena::copy(const BlockCopy& copy) {
  const Index bytes = regions_[static_cast<std::size_t>(copy.group)].block_bytes;
  std::memcpy(block(copy.group, copy.to), block(copy.group, copy.from),
              static_cast<std::size_t>(bytes));
}

void KvArena::reclaim(const BlockPool& pool, Index keep) {
  for (std::size_t g = 0; g < regions_.size(); ++g) {
    Region& region = regions_[g];
    const auto group = static_cast<Index>(g);
    std::vector<bool> is_free(region.resident.size());
    for (std::size_t id = 0; id < is_free.size(); ++id) {
      is_free[id] = pool.references(group, static_cast<BlockId>(id)) == 0;
    }
    const std::span<const BlockId> freed = pool.free_blocks(group);
    for (auto id = freed.rbegin(); id != freed.rend() && keep >= region.block_bytes; ++id) {
      if (!region.resident[static_cast<std::size_t>(*id)]) continue;
      is_free[static_cast<std::size_t>(*id)] = false;
      keep -= region.block_bytes;
    }
    discard(region, is_free);
  }
}

// Discards whole runs of free blocks, so that pages between two of them go as well.
void KvArena::discard(Region& region, const std::vector<bool>& is_free) {
  for (std::size_t begin = 0; begin < is_free.size(); ++begin) {
    if (!is_free[begin]) continue;
    std::size_t end = begin;
    Index resident = 0;
    for (; end < is_free.size() && is_free[end]; ++end) {
      resident += region.resident[end];
      region.resident[end] = false;
    }
    if (resident > 0) {
      discard_pages(region.memory.data() + static_cast<Index>(begin) * region.block_bytes,
                    static_cast<Index>(end - begin) * region.block_bytes);
    }
    resident_bytes_ -= resident * region.block_bytes;
    begin = end;
  }
}

}  // namespace hone::infer
