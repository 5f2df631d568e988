// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/plan.h"

namespace hone::kernels {

// Dense tensors cut for one sweep. A tensor of more than kChunkElements is a chunk for each of
// them, or at most kMostChunks longer ones; neighbors that are smaller share a worker's unit.
// Borders depend on a tensor's size alone. Holds nothing per chunk, unlike MultiTensorPlan, which
// is kept over many steps.
class ListCut {
 public:
  static constexpr Index kMostChunks = 1024;

  explicit ListCut(std::span<const TensorView> tensors);

  Index tensors() const { return static_cast<Index>(tensors_.size()) - 1; }
  Index chunks() const { return tensors_.back().first_chunk; }
  // Chunks of tensor i are [first_chunk(i), first_chunk(i + 1)): none of an empty tensor.
  Index first_chunk(Index i) const { return tensors_[static_cast<std::size_t>(i)].first_chunk; }

  // Calls body(chunk, its number) for every chunk, in parallel.
  void sweep(Executor& executor, FunctionRef<void(const Chunk&, Index)> body) const;

 private:
  struct Tensor {
    Index elements = 0, first_chunk = 0;
  };
  // Units from first_unit up to that of the next run: one of several small tensors, or the chunks
  // of a single large one.
  struct Run {
    Index first_unit = 0, first_tensor = 0, chunk_elements = 0;
  };

  void sweep_unit(Index unit, FunctionRef<void(const Chunk&, Index)> body) const;

  std::vector<Tensor> tensors_;  // and one behind the last
  std::vector<Run> runs_;        // and one behind the last
};

}  // namespace hone::kernels
