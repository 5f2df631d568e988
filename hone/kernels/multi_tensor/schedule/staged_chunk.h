// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/core/buffer.h"
#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/layout/plan.h"
#include "hone/kernels/multi_tensor/step.h"

namespace hone::kernels {

// The slots that a step computes in f32: the slots of the rule and the moving average.
constexpr int kStagedSlots = static_cast<int>(Slot::Ema) + 1;

// A chunk whose slots are all dense f32: some in place, others as copies in a scratch buffer.
struct StagedChunk {
  float* slots[kStagedSlots] = {};
  bool copied[kStagedSlots] = {};

  ChunkOperands operands(const Chunk& chunk) const {
    return {slots[0], slots[1], slots[2], slots[3], slots[4], chunk.length, chunk.offset};
  }
  float* average() const { return slots[static_cast<int>(Slot::Ema)]; }
};

// Provides the chunks of a plan to rules as dense f32 and writes their changes back. The scratch
// buffer has space for one chunk per worker.
class ChunkStager {
 public:
  // Pieces of this many elements keep their scratch in the first-level cache.
  static constexpr Index kPiece = 2 * kCodeBlock;

  // With `stages_all`, dense f32 chunks are staged too, for a dry run.
  ChunkStager(const MultiTensorPlan& plan, const StepControl& control, int workers,
              bool stages_all);

  Index scratch_bytes() const { return scratch_.bytes(); }
  // Returns true if some slot of the chunk needs a copy.
  bool is_indirect(const Chunk& chunk) const { return plan_.tensor(chunk.tensor).indirect >= 0; }
  // Returns a chunk that is dense f32, without a copy.
  StagedChunk in_place(const Chunk& chunk) const;
  // Copies each of the first `slots` slots that is not dense f32 into the scratch of `worker`; with
  // `all`, copies all of them.
  StagedChunk stage(const Chunk& chunk, int worker, bool all, int slots = kStagedSlots) const;
  // Writes the copies back; gradients only if the step writes them.
  void write_back(const Chunk& chunk, const StagedChunk& staged) const;
  // Prefetches the data after a piece of an indirect tensor, so that memory is read while the piece
  // is encoded.
  void prefetch_behind(const Chunk& piece) const;

  // Returns the moments that are narrow in memory, for rules that support them.
  NarrowMoments narrow_moments(const Chunk& chunk) const;
  // Stores the new parameters rounded into the low-precision copy, if the plan has that slot.
  void store_copy(const Chunk& chunk, const float* param) const;
  // Returns the largest value that a slot of this chunk can store, in any rounding direction.
  float largest_stored(const Chunk& chunk, Slot slot) const;

 private:
  bool is_narrow(const MultiTensorPlan::Tensor& tensor, int slot) const {
    return plan_.indirect(tensor).views[slot].dtype != Dtype::Float32;
  }
  NarrowChunk narrow_part(const Chunk& chunk, int slot) const;
  RoundingKey rounding_of(const Chunk& chunk, int slot) const;

  const MultiTensorPlan& plan_;
  const StepControl& control_;
  StateCodec codec_ = choose_state_codec();
  Index stride_ = 0;  // elements of one slot's scratch
  Buffer scratch_;    // [worker][slot][stride_]
};

}  // namespace hone::kernels
