// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/index.h"
#include "hone/kernels/multi_tensor/cuda/argument_table.h"

// Assigns work to blocks of threads; host code only.
namespace hone::kernels::cuda {

constexpr Index kSmallestChunk = 1024, kLargestChunk = 65536;

// Returns the largest power of two from 1024 to 65,536 that cuts the tensors into at least two
// chunks for each block that the device runs at a time; 1024 if there is none. A fixed large chunk
// would leave a middle-sized tensor to a single multiprocessor.
Index choose_chunk(std::span<const Index> elements, Index resident_blocks);

// One launch: blocks [first_block, first_block + blocks) of the list, which lie in tensors
// [first_tensor, first_tensor + tensors).
struct TableRange {
  Index first_tensor = 0, tensors = 0;
  Index first_block = 0, blocks = 0;
  bool operator==(const TableRange&) const = default;
};

// The flat list of (tensor, chunk) in order, one block each. Tensors without elements have none.
class WorkList {
 public:
  WorkList() = default;
  bool operator==(const WorkList&) const = default;
  // `chunk_elements` must be a power of two. Throws Error{Unsupported} for more than 2^31 - 1
  // tensors or blocks.
  WorkList(std::span<const Index> elements, Index chunk_elements);

  Index tensors() const { return static_cast<Index>(elements_.size()); }
  Index blocks() const { return first_block_.back(); }
  Index chunk_elements() const { return chunk_elements_; }
  Index elements(Index tensor) const { return elements_[static_cast<std::size_t>(tensor)]; }
  // Blocks of tensor i are [first_block(i), first_block(i + 1)).
  Index first_block(Index tensor) const { return first_block_[static_cast<std::size_t>(tensor)]; }
  std::span<const Index> first_blocks() const { return first_block_; }
  std::vector<BlockEntry> all_blocks() const;

  // Returns the list in order, cut where a struct is full. A tensor may continue in the next
  // struct. No struct begins or ends with a tensor that has no block in it.
  std::vector<TableRange> split(Index most_tensors, Index most_blocks) const;

 private:
  std::vector<Index> elements_;
  std::vector<Index> first_block_{0};  // one entry more than tensors
  Index chunk_elements_ = kLargestChunk;
};

// Writes one launch of `list` into a struct of kernel arguments. `entries` has all tensors.
template <int kScale, int... kSlots>
void fill_table(const WorkList& list, std::span<const TensorEntry> entries, const TableRange& range,
                StructTable<kScale, kSlots...>& table) {
  constexpr int slots[] = {kSlots...};
  Index block = range.first_block;
  const Index end = range.first_block + range.blocks;
  for (Index t = 0; t < range.tensors; ++t) {
    const Index tensor = range.first_tensor + t;
    const TensorEntry& entry = entries[static_cast<std::size_t>(tensor)];
    for (int d = 0; d < table.kDepth; ++d) table.addresses[d][t] = entry.address[slots[d]];
    table.lengths[t] = entry.elements;
    for (; block < end && block < list.first_block(tensor + 1); ++block) {
      table.blocks[block - range.first_block] = {
          static_cast<std::int32_t>(t),
          static_cast<std::int32_t>(block - list.first_block(tensor))};
    }
  }
}

}  // namespace hone::kernels::cuda
