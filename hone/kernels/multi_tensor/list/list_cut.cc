// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/list/list_cut.h"

#include <algorithm>

namespace hone::kernels {

ListCut::ListCut(std::span<const TensorView> tensors) {
  tensors_.reserve(tensors.size() + 1);
  Index filled = kChunkElements, units = 0, chunks = 0;  // filled: by the last run
  for (const TensorView& view : tensors) {
    const Index elements = view.elements(), tensor = static_cast<Index>(tensors_.size());
    tensors_.push_back({elements, chunks});
    if (elements == 0) continue;
    const Index length = round_up(ceil_div(elements, kMostChunks), kChunkElements);
    const Index pieces = ceil_div(elements, length);
    if (filled + elements > kChunkElements) {
      runs_.push_back({units, tensor, length});
      units += pieces;
      filled = 0;
    }
    filled += elements;
    chunks += pieces;
  }
  tensors_.push_back({0, chunks});
  runs_.push_back({units, static_cast<Index>(tensors.size()), 0});
}

void ListCut::sweep(Executor& executor, FunctionRef<void(const Chunk&, Index)> body) const {
  executor.parallel_for(runs_.back().first_unit, 1, [&](Index begin, Index end, int) {
    for (Index unit = begin; unit < end; ++unit) sweep_unit(unit, body);
  });
}

void ListCut::sweep_unit(Index unit, FunctionRef<void(const Chunk&, Index)> body) const {
  const auto next = std::upper_bound(runs_.begin(), runs_.end(), unit,
                                     [](Index u, const Run& run) { return u < run.first_unit; });
  const Run& run = *std::prev(next);
  for (Index i = run.first_tensor; i < next->first_tensor; ++i) {
    const Index elements = tensors_[static_cast<std::size_t>(i)].elements;
    if (elements == 0) continue;
    const Index piece = unit - run.first_unit, offset = piece * run.chunk_elements;
    const Index length = std::min(run.chunk_elements, elements - offset);
    body({i, offset, length}, first_chunk(i) + piece);
  }
}

}  // namespace hone::kernels
