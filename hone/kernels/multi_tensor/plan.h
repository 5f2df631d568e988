// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// 16,384 elements: the four fp32 streams of Adam are 256 KiB, a quarter of a common L2.
constexpr Index kChunkElements = 16384;

// The tensors of one optimiser call: equal lengths; a slot the rule does not use is an empty span.
// All fp32, any alignment and layout. Momentum, second_moment and extra have the layout of param.
// No two of these may share memory, except that gradients may be read more than once.
struct MultiTensorLists {
  std::span<const TensorView> param, grad, momentum, second_moment, extra;
  std::span<const std::uint16_t> group;  // index into the per-group scalars
  std::span<Index> step;                 // steps taken per tensor; advanced only when stepped
};

// Consecutive elements of one tensor, in memory order (strided tensors: row-major order).
struct Chunk {
  Index tensor = 0, offset = 0, length = 0;
};

// What one worker takes at a time: chunks [begin, end), together about kChunkElements.
struct ChunkUnit {
  Index begin = 0, end = 0;
};

enum class Slot { Param, Grad, Momentum, SecondMoment, Extra };
constexpr int kSlots = 5;

// The flat list of (tensor, chunk) over many tensors, built once and used while nothing moves.
// Keeps addresses, owns no tensor. Chunk borders depend on a tensor's size alone, so results depend
// neither on threads nor on how a list is split over calls.
class MultiTensorPlan {
 public:
  // Error{InvalidArgument} naming the tensor: lists of different lengths, shapes or layouts that
  // differ, a tensor listed twice, memory that overlaps. Error{Unsupported}: not fp32.
  static MultiTensorPlan build_or_throw(const MultiTensorLists& lists);

  // Does the plan still describe these tensors? O(T): address, size, layout, group.
  bool matches(const MultiTensorLists& lists) const;
  // Makes the plan describe `lists`, with the least work: nothing, new gradient addresses (for
  // callers that free gradients every step; no allocation), or a new plan. Errors as
  // build_or_throw, and the plan is then unchanged.
  enum class Change { None, Gradients, Rebuilt };
  Change follow_or_throw(const MultiTensorLists& lists);

  Index tensors() const { return static_cast<Index>(tensors_.size()); }
  Index chunks() const { return static_cast<Index>(chunks_.size()); }
  Index elements() const { return elements_; }

  // ---- for the passes ----
  struct Tensor {
    float* data[kSlots] = {};  // nullptr: unused slot
    Index elements = 0;
    Index first_chunk = 0;
    std::uint64_t layout = 0, grad_layout = 0;  // fingerprints of shapes and strides
    std::int32_t strided = -1;  // index into strided views; -1: one dense block in every slot
    std::uint16_t group = 0;

    float* slot(Slot s) const { return data[static_cast<int>(s)]; }
  };
  // A tensor whose slots are not dense blocks of one layout.
  struct StridedViews {
    TensorView views[kSlots];
  };

  // The caller's step counters.
  std::span<Index> step() const { return step_; }
  const Tensor& tensor(Index i) const { return tensors_[static_cast<std::size_t>(i)]; }
  const StridedViews& strided(const Tensor& t) const {
    return strided_[static_cast<std::size_t>(t.strided)];
  }
  // Do the tensors have this slot? (All or none.)
  bool has_slot(Slot slot) const {
    return !tensors_.empty() && slots_used_[static_cast<std::size_t>(slot)];
  }
  bool has_strided() const { return !strided_.empty(); }
  std::span<const Chunk> chunk_list() const { return chunks_; }
  // Chunks of tensor i are [first_chunk(i), first_chunk(i + 1)).
  Index first_chunk(Index i) const { return i < tensors() ? tensor(i).first_chunk : chunks(); }
  // Units in chunk order. One that holds whole tensors only can go through both passes on one
  // worker.
  std::span<const ChunkUnit> units() const { return units_; }
  bool unit_is_whole(Index unit) const { return whole_[static_cast<std::size_t>(unit)] != 0; }
  // Error{InvalidArgument} naming the tensor when a gradient shares memory with itself (an expanded
  // view) or with another gradient, so that writing it back would go wrong.
  void check_gradients_writable() const;

 private:
  void add_tensor(const MultiTensorLists& lists, Index i);
  void check_disjoint(const MultiTensorLists& lists);
  bool touches_written_memory(const TensorView& grad) const;
  Change compare(const MultiTensorLists& lists) const;
  void cut_units();

  std::vector<Tensor> tensors_;
  std::vector<StridedViews> strided_;
  std::vector<Chunk> chunks_;
  std::vector<ChunkUnit> units_;
  std::vector<std::uint8_t> whole_;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>>
      written_;  // dense parameters and state, sorted
  std::array<bool, kSlots> slots_used_{};
  std::span<Index> step_;
  Index elements_ = 0;
};

}  // namespace hone::kernels
