// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/infer/kv/block_pool.h"

namespace hone::infer {

// The memory of the blocks of a BlockPool. Address space is reserved for all of them, and the
// system provides each page at its first use.
//
// Each group alone could use the whole budget, so with several groups the address space exceeds the
// budget. Resident memory stays within the budget if the owner calls reclaim() whenever
// resident_bytes() exceeds it.
//
// Large regions ask for huge pages. Returning a part of a huge page splits it, and the system may
// later complete it again, so that each block in use can keep up to 2 MiB resident.
class KvArena {
 public:
  // Throws Error{Resource} if the address space cannot be reserved.
  explicit KvArena(const BlockPool& pool);

  // Returns the memory of a block, which counts as resident from now on. If block sizes are whole
  // pages, reclaim() can return all of it.
  std::byte* block(Index group, BlockId id);
  Index resident_bytes() const { return resident_bytes_; }
  // Copies a block. Must be called before the next step.
  void copy(const BlockCopy& copy);
  // Returns the memory of free blocks to the system, except up to `keep` bytes of the most recently
  // freed ones. Contents are lost, so no thread may be reading these blocks. This includes a worker
  // whose result is no longer wanted.
  void reclaim(const BlockPool& pool, Index keep = 0);

 private:
  struct Region {
    Index block_bytes = 0;
    Buffer memory;
    std::vector<bool> resident;  // by block
  };

  void discard(Region& region, const std::vector<bool>& is_free);

  std::vector<Region> regions_;  // by group
  Index resident_bytes_ = 0;
};

}  // namespace hone::infer
