// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// 16,384 elements: the four fp32 streams of Adam are 256 KiB, a quarter of a common L2.
constexpr Index kChunkElements = 16384;

// The tensors of one optimizer call. All lists have the same length; a slot that the rule does not
// use is an empty span. Any alignment and layout is allowed. Slots except grad have the layout of
// param, or any layout if param has holes. Types:
//   param          f32, bf16 (rounded stochastically)      grad   f32, bf16, f16
//   momentum       f32, bf16 (stochastic), i8 (codes)      extra  f32
//   second_moment  f32, bf16 (stochastic), u8 (codes)      ema    f32
//   copy           bf16, f16: the new parameter, rounded to nearest
// A tensor with a slot that is not f32 must be one dense block. Codes: codec/state_codec.h. No two
// of these, including scales, may share memory, except gradients that are only read.
struct MultiTensorLists {
  std::span<const TensorView> param, grad, momentum, second_moment, extra;
  std::span<const std::uint16_t> group;  // index into the per-group scalars
  std::span<Index> step;                 // steps taken per tensor; advanced only when stepped
  std::span<const TensorView> ema = {}, copy = {};
  // f32, one per block of kCodeBlock elements; null views where the tensor has no codes.
  std::span<const TensorView> momentum_scale = {}, second_moment_scale = {};
  // Elements of a row for tensors that are stepped row by row, 0 for others. Chunks have whole
  // rows.
  std::span<const Index> row_length = {};
  // Makes random bits differ between tensors; if empty, 0 for all.
  std::span<const std::uint32_t> rounding_key = {};
};

// Consecutive elements of one tensor, in memory order (strided tensors: row-major order).
struct Chunk {
  Index tensor = 0, offset = 0, length = 0;
};

// The work that one worker takes at a time: chunks [begin, end), together about kChunkElements.
struct ChunkUnit {
  Index begin = 0, end = 0;
  bool whole = false;  // has only whole tensors, which can go through both passes on one worker
};

enum class Slot { Param, Grad, Momentum, SecondMoment, Extra, Ema, Copy };
constexpr int kSlots = 7;
// The list and the name of each slot.
inline constexpr std::array<std::span<const TensorView> MultiTensorLists::*, kSlots> kSlotLists{
    &MultiTensorLists::param,         &MultiTensorLists::grad,  &MultiTensorLists::momentum,
    &MultiTensorLists::second_moment, &MultiTensorLists::extra, &MultiTensorLists::ema,
    &MultiTensorLists::copy};
inline constexpr std::array<std::string_view, kSlots> kSlotNames{
    "param", "grad", "momentum", "second_moment", "extra", "ema", "copy"};

// The address of a slot of a tensor and how it is read. Equal keys mean the same numbers in the
// same order.
struct SlotKey {
  void* data = nullptr;  // null: the tensor has no such slot
  std::uint64_t layout = 0;

  friend bool operator==(const SlotKey&, const SlotKey&) = default;
};
// Returns a fingerprint of type, sizes, strides (except for dimensions of size one) and the address
// of the scales of codes.
std::uint64_t layout_fingerprint(Dtype dtype, std::span<const Index> sizes,
                                 std::span<const Index> strides, const void* scales = nullptr);

// The flat list of (tensor, chunk) over many tensors, built once and used until something moves.
// Keeps addresses but owns no tensor. Chunk borders depend only on a tensor's size, so results
// depend neither on threads nor on how a list is split over calls.
class MultiTensorPlan {
 public:
  // Error{InvalidArgument} naming the tensor: lists of different lengths, shapes or layouts that
  // differ, a tensor listed twice, memory that overlaps. Error{Unsupported}: a
  // type or layout that a slot does not take.
  static MultiTensorPlan build_or_throw(const MultiTensorLists& lists);

  // Detects changed tensors. Returns true if this tensor is unchanged, or if only its gradient has
  // moved with the same type and layout, as when callers free gradients every step. The plan then
  // uses the new address. Otherwise, or if the gradient is strided or may overlap memory that a
  // step writes, returns false and changes nothing: build a new plan. Several threads may call it
  // for different tensors.
  bool follow(Index tensor, std::span<const SlotKey, kSlots> now);
  // Like follow() for whole lists; makes a new plan if one is needed. Throws like build_or_throw(),
  // and the plan is then unchanged.
  enum class Change { None, Gradients, Rebuilt };
  Change follow_or_throw(const MultiTensorLists& lists);

  Index tensors() const { return static_cast<Index>(tensors_.size()); }
  Index chunks() const { return static_cast<Index>(chunks_.size()); }
  Index elements() const { return elements_; }

  // ---- for the passes ----
  struct Tensor {
    std::array<SlotKey, kSlots> keys = {};
    Index elements = 0;
    Index first_chunk = 0;
    Index row_length = 0;        // as in MultiTensorLists
    std::int32_t indirect = -1;  // index into indirect tensors; -1: f32 in dense blocks
    std::uint32_t rounding_key = 0;
    std::uint16_t group = 0;

    // Returns null if the tensor has no such slot.
    void* data(int slot) const { return keys[static_cast<std::size_t>(slot)].data; }
  };
  // A tensor whose slots are not all f32 in dense blocks of one layout. Its chunks go through a
  // scratch buffer, except narrow moments of rules that support them.
  struct Indirect {
    TensorView views[kSlots];
    float* scales[kSlots] = {};
    bool strided = false;
    // True if the moments, all bf16 or all codes, are the only slots of the rule and ema that are
    // not f32.
    bool only_moments = false;
  };

  // The caller's step counters.
  std::span<Index> step() const { return step_; }
  const Tensor& tensor(Index i) const { return tensors_[static_cast<std::size_t>(i)]; }
  const Indirect& indirect(const Tensor& t) const {
    return indirect_[static_cast<std::size_t>(t.indirect)];
  }
  // Returns true if the tensors have this slot (all or none do).
  bool has_slot(Slot slot) const {
    return !tensors_.empty() && slots_used_[static_cast<std::size_t>(slot)];
  }
  bool has_indirect() const { return !indirect_.empty(); }
  Index longest_chunk() const { return longest_chunk_; }
  std::span<const Chunk> chunk_list() const { return chunks_; }
  // Chunks of tensor i are [first_chunk(i), first_chunk(i + 1)).
  Index first_chunk(Index i) const { return i < tensors() ? tensor(i).first_chunk : chunks(); }
  // In chunk order.
  std::span<const ChunkUnit> units() const { return units_; }
  // Throws Error{InvalidArgument} that names the tensor if a gradient shares memory with itself (an
  // expanded view) or with another gradient. Writing it back would then be wrong.
  void check_gradients_writable() const;

 private:
  void add_tensor(const MultiTensorLists& lists, Index i);
  void add_chunks(const Tensor& tensor, Index row_length);
  void check_disjoint(const MultiTensorLists& lists);
  Change compare(Index tensor, std::span<const SlotKey, kSlots> now) const;
  Change compare(const MultiTensorLists& lists) const;
  bool may_move_gradient(const Tensor& tensor, const void* data) const;
  void move_gradient(Tensor& tensor, void* data);
  void cut_units();

  std::vector<Tensor> tensors_;
  std::vector<Indirect> indirect_;
  std::vector<Chunk> chunks_;
  std::vector<ChunkUnit> units_;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>>
      written_;  // dense parameters and state, sorted
  std::array<bool, kSlots> slots_used_{};
  std::span<Index> step_;
  Index elements_ = 0, longest_chunk_ = 0;
};

}  // namespace hone::kernels
