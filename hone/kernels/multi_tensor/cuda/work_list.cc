// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/cuda/work_list.h"

#include <algorithm>
#include <limits>

#include "hone/core/check.h"

namespace hone::kernels::cuda {

Index choose_chunk(std::span<const Index> elements, Index resident_blocks) {
  for (Index chunk = kLargestChunk; chunk > kSmallestChunk; chunk /= 2) {
    Index blocks = 0;
    for (const Index n : elements) blocks += ceil_div(n, chunk);
    if (blocks >= 2 * resident_blocks) return chunk;
  }
  return kSmallestChunk;
}

WorkList::WorkList(std::span<const Index> elements, Index chunk_elements)
    : elements_(elements.begin(), elements.end()), chunk_elements_(chunk_elements) {
  first_block_.reserve(elements.size() + 1);
  for (const Index n : elements) first_block_.push_back(blocks() + ceil_div(n, chunk_elements));
  constexpr Index kMost = std::numeric_limits<std::int32_t>::max();  // of a grid, and of BlockEntry
  if (blocks() > kMost || tensors() > kMost) {
    fail_unsupported("multi_tensor cuda", "at most 2^31 - 1 tensors and blocks",
                     concat(tensors(), " and ", blocks()));
  }
}

std::vector<BlockEntry> WorkList::all_blocks() const {
  std::vector<BlockEntry> all;
  all.reserve(static_cast<std::size_t>(blocks()));
  for (Index tensor = 0; tensor < tensors(); ++tensor) {
    const Index count = first_block(tensor + 1) - first_block(tensor);
    for (Index chunk = 0; chunk < count; ++chunk) {
      all.push_back({static_cast<std::int32_t>(tensor), static_cast<std::int32_t>(chunk)});
    }
  }
  return all;
}

std::vector<TableRange> WorkList::split(Index most_tensors, Index most_blocks) const {
  std::vector<TableRange> ranges;
  bool full = true;
  for (Index tensor = 0; tensor < tensors(); ++tensor) {
    Index block = first_block(tensor);
    const Index end = first_block(tensor + 1);
    while (block < end) {
      if (full || tensor - ranges.back().first_tensor >= most_tensors) {
        ranges.push_back({tensor, 0, block, 0});
      }
      TableRange& range = ranges.back();
      const Index taken = std::min(end - block, most_blocks - range.blocks);
      range.blocks += taken;
      range.tensors = tensor + 1 - range.first_tensor;
      block += taken;
      full = range.blocks == most_blocks;
    }
  }
  return ranges;
}

}  // namespace hone::kernels::cuda
