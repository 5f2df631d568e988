// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/kv/kv_arena.h"

#include <sys/mman.h>

#include <cstring>

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

void KvArena::reclaim(const BlockPool& pool) {
  for (std::size_t g = 0; g < regions_.size(); ++g) {
    Region& region = regions_[g];
    for (std::size_t id = 0; id < region.resident.size(); ++id) {
      if (!region.resident[id]) continue;
      if (pool.references(static_cast<Index>(g), static_cast<BlockId>(id)) > 0) continue;
      discard_pages(region.memory.data() + static_cast<Index>(id) * region.block_bytes,
                    region.block_bytes);
      region.resident[id] = false;
      resident_bytes_ -= region.block_bytes;
    }
  }
}

}  // namespace hone::infer
