// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "hone/core/buffer.h"
#include "hone/infer/kv/block_pool.h"

namespace hone::infer {

// The memory of the blocks of a BlockPool: address space for all of them, of which the system
// provides a page at its first use.
//
// Each group alone could use the whole budget, so with several groups the address space is larger
// than it. Resident memory stays within the budget if the owner calls reclaim() whenever
// resident_bytes() exceeds it.
class KvArena {
 public:
  // Throws Error{Resource} if the address space cannot be reserved.
  explicit KvArena(const BlockPool& pool);

  // The memory of a block; it counts as resident from now on. Block sizes of whole pages let
  // reclaim() return all of it.
  std::byte* block(Index group, BlockId id);
  Index resident_bytes() const { return resident_bytes_; }
  // Makes the copy before the next step.
  void copy(const BlockCopy& copy);
  // Returns the memory of free blocks to the system. Their contents are lost.
  void reclaim(const BlockPool& pool);

 private:
  struct Region {
    Index block_bytes = 0;
    Buffer memory;
    std::vector<bool> resident;  // by block
  };

  std::vector<Region> regions_;  // by group
  Index resident_bytes_ = 0;
};

}  // namespace hone::infer
