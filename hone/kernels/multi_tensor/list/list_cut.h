// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "hone/core/function_ref.h"
#include "hone/core/tensor_view.h"
#include "hone/core/thread/executor.h"
#include "hone/kernels/multi_tensor/layout/plan.h"

namespace hone::kernels {

// Dense tensors cut for one sweep. A tensor of more than kChunkElements is cut into chunks of that
// size, or into at most kMostChunks longer ones. Smaller neighbors share a worker's unit. Borders
// depend only on a tensor's size. Unlike MultiTensorPlan, which is kept over many steps, it stores
// nothing per chunk.
class ListCut {
 public:
  static constexpr Index kMostChunks = 1024;

  explicit ListCut(std::span<const TensorView> tensors);

  Index tensors() const { return static_cast<Index>(tensors_.size()) - 1; }
  Index chunks() const { return tensors_.back().first_chunk; }
  // Chunks of tensor i are [first_chunk(i), first_chunk(i + 1)); an empty tensor has none.
  Index first_chunk(Index i) const { return tensors_[static_cast<std::size_t>(i)].first_chunk; }

  // Calls body(chunk, number of the chunk) for every chunk, in parallel.
  void sweep(Executor& executor, FunctionRef<void(const Chunk&, Index)> body) const;

 private:
  struct Tensor {
    Index elements = 0, first_chunk = 0;
  };
  // Units from first_unit to the first one of the next run: one unit of several small tensors, or
  // the chunks of a single large tensor.
  struct Run {
    Index first_unit = 0, first_tensor = 0, chunk_elements = 0;
  };

  void sweep_unit(Index unit, FunctionRef<void(const Chunk&, Index)> body) const;

  std::vector<Tensor> tensors_;  // with one behind the last
  std::vector<Run> runs_;        // with one behind the last
};

}  // namespace hone::kernels
