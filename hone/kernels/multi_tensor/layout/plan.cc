// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/layout/plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "hone/kernels/multi_tensor/codec/state_codec.h"
#include "hone/kernels/multi_tensor/layout/view_layout.h"

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor plan";

std::span<const TensorView> list_of(const MultiTensorLists& lists, int slot) {
  return lists.*kSlotLists[static_cast<std::size_t>(slot)];
}

std::string describe(int slot, Index i) {
  return concat(kSlotNames[static_cast<std::size_t>(slot)], " of tensor ", i);
}

void check_lengths(const MultiTensorLists& lists) {
  const std::size_t count = lists.param.size();
  for (int slot = 0; slot < kSlots; ++slot) {
    const std::size_t length = list_of(lists, slot).size();
    const bool required = slot <= static_cast<int>(Slot::Grad);
    HONE_CHECK(length == count || (length == 0 && !required), kOp,
               concat(count, " tensors in list ", kSlotNames[static_cast<std::size_t>(slot)]),
               length);
  }
  const auto check_optional = [count](std::string_view name, std::size_t length) {
    HONE_CHECK(length == count || length == 0, kOp, concat(count, " entries in list ", name),
               length);
  };
  check_optional("momentum_scale", lists.momentum_scale.size());
  check_optional("second_moment_scale", lists.second_moment_scale.size());
  check_optional("row_length", lists.row_length.size());
  check_optional("rounding_key", lists.rounding_key.size());
  HONE_CHECK(lists.group.size() == count, kOp, concat(count, " group numbers"), lists.group.size());
  HONE_CHECK(lists.step.size() == count, kOp, concat(count, " step counters"), lists.step.size());
}

// [begin, end) of the bytes a view can touch.
struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
  Index tensor = 0;
  int slot = 0;
  bool dense = true;
};

ByteRange range_of(const TensorView& view, Index tensor, int slot) {
  const auto [begin, end] = byte_range(view);
  return {begin, end, tensor, slot, is_dense(view)};
}

bool is_gradient(const ByteRange& range) { return range.slot == static_cast<int>(Slot::Grad); }

// Interleaved views, such as two columns of one matrix, are legal; only dense blocks are proved
// disjoint by their ranges.
bool clash(const ByteRange& a, const ByteRange& b) {
  if (a.begin == b.begin) return true;
  return a.dense && b.dense && b.begin < a.end && a.begin < b.end;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

bool holds_codes(Dtype dtype) { return dtype == Dtype::Int8 || dtype == Dtype::UInt8; }

const std::span<const TensorView>& scales_of(const MultiTensorLists& lists, int slot) {
  return slot == static_cast<int>(Slot::Momentum) ? lists.momentum_scale
                                                  : lists.second_moment_scale;
}

std::array<SlotKey, kSlots> keys_of(const MultiTensorLists& lists, std::size_t at) {
  std::array<SlotKey, kSlots> keys;
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto list = list_of(lists, slot);
    if (list.empty()) continue;
    const TensorView& view = list[at];
    const void* scales = nullptr;
    if (slot == static_cast<int>(Slot::Momentum) || slot == static_cast<int>(Slot::SecondMoment)) {
      const auto& scale_list = scales_of(lists, slot);
      if (!scale_list.empty()) scales = scale_list[at].data;
    }
    keys[static_cast<std::size_t>(slot)] = {
        view.data, layout_fingerprint(view.dtype, view.shape.dims(), view.strides.dims(), scales)};
  }
  return keys;
}

template <class T>
T entry_or_zero(std::span<const T> list, std::size_t at) {
  return list.empty() ? T{} : list[at];
}

// A slot of codes has two: the codes and their scales, which have been checked.
std::vector<ByteRange> sorted_ranges(const MultiTensorLists& lists) {
  std::vector<ByteRange> ranges;
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto list = list_of(lists, slot);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].elements() > 0) ranges.push_back(range_of(list[i], static_cast<Index>(i), slot));
      if (!holds_codes(list[i].dtype) || list[i].elements() == 0) continue;
      const auto& scales = scales_of(lists, slot)[i];
      ranges.push_back(range_of(scales, static_cast<Index>(i), slot));
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  return ranges;
}

// Types that a slot may have, the usual one first.
std::span<const Dtype> types_of(int slot) {
  static constexpr Dtype kParam[] = {Dtype::Float32, Dtype::BFloat16};
  static constexpr Dtype kGrad[] = {Dtype::Float32, Dtype::BFloat16, Dtype::Float16};
  static constexpr Dtype kMomentum[] = {Dtype::Float32, Dtype::BFloat16, Dtype::Int8};
  static constexpr Dtype kSecondMoment[] = {Dtype::Float32, Dtype::BFloat16, Dtype::UInt8};
  static constexpr Dtype kFull[] = {Dtype::Float32};
  static constexpr Dtype kCopy[] = {Dtype::BFloat16, Dtype::Float16};
  static constexpr std::array<std::span<const Dtype>, kSlots> kAll{
      kParam, kGrad, kMomentum, kSecondMoment, kFull, kFull, kCopy};
  return kAll[static_cast<std::size_t>(slot)];
}

void check_type(const TensorView& view, int slot, Index i) {
  const auto types = types_of(slot);
  if (std::find(types.begin(), types.end(), view.dtype) != types.end()) return;
  std::string expected(name_of(types.front()));
  for (const Dtype type : types.subspan(1)) expected += concat(" or ", name_of(type));
  fail_unsupported(kOp, concat(expected, " for ", describe(slot, i)), name_of(view.dtype));
}

void check_view(const TensorView& view, const TensorView& param, int slot, Index i) {
  check_type(view, slot, i);
  HONE_CHECK(view.shape == param.shape, kOp,
             concat(describe(slot, i), " of shape ", to_text(param.shape)), to_text(view.shape));
  HONE_CHECK(view.data != nullptr || view.elements() == 0, kOp,
             concat("memory for ", describe(slot, i)), "none");
  if (slot == static_cast<int>(Slot::Grad)) return;
  // State of a parameter with holes is dense.
  HONE_CHECK(same_strides(view, param) || !is_dense(param), kOp,
             concat(describe(slot, i), " in the layout of param"),
             concat("strides ", to_text(view.strides)));
  HONE_CHECK(!overlaps_itself(view), kOp, concat(describe(slot, i), " without internal overlap"),
             concat("strides ", to_text(view.strides), " on shape ", to_text(view.shape)));
}

// Where a slot of codes has its scales, null for others.
float* scales_of_or_throw(const MultiTensorLists& lists, int slot, Index i) {
  const auto at = static_cast<std::size_t>(i);
  const TensorView& codes = list_of(lists, slot)[at];
  if (!holds_codes(codes.dtype) || codes.elements() == 0) return nullptr;
  const auto& scales = scales_of(lists, slot);
  const Index blocks = ceil_div(codes.elements(), kCodeBlock);
  const std::string what = concat(blocks, " f32 scales for ", describe(slot, i));
  HONE_CHECK(!scales.empty() && scales[at].data != nullptr, kOp, what, "none");
  HONE_CHECK(
      scales[at].dtype == Dtype::Float32 && scales[at].elements() == blocks && is_dense(scales[at]),
      kOp, what, concat(scales[at].elements(), " of ", name_of(scales[at].dtype)));
  return scales[at].as<float>();
}

// Chunks of codes begin at blocks.
Index row_length_of(const MultiTensorLists& lists, std::size_t at) {
  if (lists.row_length.empty()) return 0;
  const Index length = lists.row_length[at], elements = lists.param[at].elements();
  if (length == 0 || elements == 0) return 0;
  HONE_CHECK(length > 0 && elements % length == 0, kOp,
             concat("a row length that divides ", elements, " for tensor ", at), length);
  for (const auto* list : {&lists.momentum, &lists.second_moment}) {
    if (list->empty() || !holds_codes((*list)[at].dtype) || length % kCodeBlock == 0) continue;
    fail_unsupported(kOp, concat("rows of a multiple of ", kCodeBlock, " for codes of tensor ", at),
                     concat(length));
  }
  return length;
}

bool only_moments_are_narrow(const MultiTensorPlan::Indirect& indirect) {
  bool bf16 = false, codes = false;
  for (int slot = 0; slot < kSlots; ++slot) {
    const TensorView& view = indirect.views[slot];
    if (view.data == nullptr || slot == static_cast<int>(Slot::Copy)) continue;
    if (slot == static_cast<int>(Slot::Momentum) || slot == static_cast<int>(Slot::SecondMoment)) {
      bf16 = bf16 || view.dtype == Dtype::BFloat16;
      codes = codes || holds_codes(view.dtype);
      if (view.dtype == Dtype::Float32) return false;
    } else if (view.dtype != Dtype::Float32) {
      return false;
    }
  }
  return !indirect.strided && bf16 != codes;
}

}  // namespace

std::uint64_t layout_fingerprint(Dtype dtype, std::span<const Index> sizes,
                                 std::span<const Index> strides, const void* scales) {
  std::uint64_t hash =
      mix(static_cast<std::uint64_t>(dtype), reinterpret_cast<std::uintptr_t>(scales));
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    hash = mix(hash, static_cast<std::uint64_t>(sizes[axis]));
    if (sizes[axis] > 1) hash = mix(hash, static_cast<std::uint64_t>(strides[axis]));
  }
  return hash;
}

void MultiTensorPlan::add_tensor(const MultiTensorLists& lists, Index i) {
  const auto at = static_cast<std::size_t>(i);
  const TensorView& param = lists.param[at];
  Tensor tensor;
  tensor.elements = param.elements();
  tensor.first_chunk = chunks();
  tensor.group = lists.group[at];
  tensor.keys = keys_of(lists, at);
  tensor.rounding_key = entry_or_zero(lists.rounding_key, at);
  Indirect indirect;
  // Rows are those of the shape, so their memory must be in its order.
  const Index row_length = row_length_of(lists, at);
  tensor.row_length = entry_or_zero(lists.row_length, at);
  indirect.strided = row_length > 0 ? !param.is_contiguous() : !is_dense(param);
  bool narrow = false;
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto list = list_of(lists, slot);
    if (list.empty()) continue;
    check_view(list[at], param, slot, i);
    indirect.views[slot] = list[at];
    indirect.scales[slot] = scales_of_or_throw(lists, slot, i);
    indirect.strided = indirect.strided || !same_strides(list[at], param);
    narrow = narrow || list[at].dtype != Dtype::Float32;
  }
  if (indirect.strided && narrow) {
    fail_unsupported(kOp, concat("dense blocks of one layout for tensor ", i, ", not all of f32"),
                     concat("strides ", to_text(lists.grad[at].strides)));
  }
  if (indirect.strided || narrow) {
    indirect.only_moments = only_moments_are_narrow(indirect);
    tensor.indirect = static_cast<std::int32_t>(indirect_.size());
    indirect_.push_back(indirect);
  }
  tensors_.push_back(tensor);
  elements_ += tensor.elements;
  add_chunks(tensor, row_length);
}

void MultiTensorPlan::add_chunks(const Tensor& tensor, Index row_length) {
  const Index rows = row_length > 0 ? std::max<Index>(1, kChunkElements / row_length) : 0;
  const Index step = row_length > 0 ? rows * row_length : kChunkElements;
  for (Index offset = 0; offset < tensor.elements; offset += step) {
    const Index length = std::min(step, tensor.elements - offset);
    chunks_.push_back({tensors() - 1, offset, length});
    longest_chunk_ = std::max(longest_chunk_, length);
  }
}

void MultiTensorPlan::cut_units() {
  Index filled = 0;
  for (Index c = 0; c < chunks(); ++c) {
    const Chunk& chunk = chunks_[static_cast<std::size_t>(c)];
    const bool whole = chunk.length == tensor(chunk.tensor).elements;
    const bool fits =
        !units_.empty() && filled + chunk.length <= kChunkElements && units_.back().whole == whole;
    if (!fits) {
      units_.push_back({c, c, whole});
      filled = 0;
    }
    units_.back().end = c + 1;
    filled += chunk.length;
  }
}

// Everything written must be disjoint from everything else. Gradients may coincide with each other.
void MultiTensorPlan::check_disjoint(const MultiTensorLists& lists) {
  const std::vector<ByteRange> ranges = sorted_ranges(lists);
  // The last one of the ranges so far, and the dense ones that reach furthest.
  const ByteRange *previous = nullptr, *written = nullptr, *read = nullptr;
  for (const ByteRange& range : ranges) {
    for (const ByteRange* other : {previous, written, is_gradient(range) ? nullptr : read}) {
      if (other == nullptr || (is_gradient(range) && is_gradient(*other))) continue;
      HONE_CHECK(!clash(*other, range), kOp,
                 concat(describe(range.slot, range.tensor), " in memory of its own"),
                 concat("memory shared with ", describe(other->slot, other->tensor)));
    }
    previous = &range;
    if (!range.dense) continue;
    const ByteRange*& furthest = is_gradient(range) ? read : written;
    if (furthest == nullptr || range.end > furthest->end) furthest = &range;
    if (!is_gradient(range)) written_.emplace_back(range.begin, range.end);
  }
}

MultiTensorPlan MultiTensorPlan::build_or_throw(const MultiTensorLists& lists) {
  check_lengths(lists);
  MultiTensorPlan plan;
  plan.step_ = lists.step;
  for (int slot = 0; slot < kSlots; ++slot) {
    plan.slots_used_[static_cast<std::size_t>(slot)] = !list_of(lists, slot).empty();
  }
  plan.tensors_.reserve(lists.param.size());
  for (Index i = 0; i < static_cast<Index>(lists.param.size()); ++i) plan.add_tensor(lists, i);
  plan.check_disjoint(lists);
  plan.cut_units();
  return plan;
}

MultiTensorPlan::Change MultiTensorPlan::compare(Index tensor,
                                                 std::span<const SlotKey, kSlots> now) const {
  constexpr std::size_t kGrad = static_cast<std::size_t>(Slot::Grad);
  const Tensor& known = tensors_[static_cast<std::size_t>(tensor)];
  Change change = Change::None;
  for (std::size_t slot = 0; slot < kSlots; ++slot) {
    if (now[slot] == known.keys[slot]) continue;
    if (slot != kGrad || now[slot].layout != known.keys[slot].layout) return Change::Rebuilt;
    if (!may_move_gradient(known, now[slot].data)) return Change::Rebuilt;
    change = Change::Gradients;
  }
  return change;
}

bool MultiTensorPlan::may_move_gradient(const Tensor& tensor, const void* data) const {
  const Indirect* narrow = tensor.indirect >= 0 ? &indirect(tensor) : nullptr;
  if (narrow != nullptr && narrow->strided) return false;
  const Dtype dtype =
      narrow == nullptr ? Dtype::Float32 : narrow->views[static_cast<int>(Slot::Grad)].dtype;
  const auto bytes = static_cast<std::uintptr_t>(tensor.elements * bytes_of(dtype));
  if (bytes == 0) return true;
  if (data == nullptr) return false;
  // The written ranges are disjoint: the last one that begins before the gradient ends is the only
  // candidate.
  const auto begin = reinterpret_cast<std::uintptr_t>(data), end = begin + bytes;
  const auto after =
      std::upper_bound(written_.begin(), written_.end(), std::pair(end - 1, ~std::uintptr_t{0}));
  return after == written_.begin() || std::prev(after)->second <= begin;
}

void MultiTensorPlan::move_gradient(Tensor& tensor, void* data) {
  constexpr int kGrad = static_cast<int>(Slot::Grad);
  tensor.keys[kGrad].data = data;
  if (tensor.indirect >= 0) {
    indirect_[static_cast<std::size_t>(tensor.indirect)].views[kGrad].data = data;
  }
}

bool MultiTensorPlan::follow(Index tensor, std::span<const SlotKey, kSlots> now) {
  const Change change = compare(tensor, now);
  if (change == Change::Gradients) {
    move_gradient(tensors_[static_cast<std::size_t>(tensor)],
                  now[static_cast<std::size_t>(Slot::Grad)].data);
  }
  return change != Change::Rebuilt;
}

MultiTensorPlan::Change MultiTensorPlan::compare(const MultiTensorLists& lists) const {
  check_lengths(lists);
  if (static_cast<Index>(lists.param.size()) != tensors()) return Change::Rebuilt;
  if (lists.step.data() != step_.data()) return Change::Rebuilt;
  Change change = Change::None;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& known = tensors_[i];
    const bool same = lists.group[i] == known.group &&
                      entry_or_zero(lists.row_length, i) == known.row_length &&
                      entry_or_zero(lists.rounding_key, i) == known.rounding_key;
    const Change own = same ? compare(static_cast<Index>(i), keys_of(lists, i)) : Change::Rebuilt;
    if (own == Change::Rebuilt) return own;
    if (own == Change::Gradients) change = own;
  }
  return change;
}

MultiTensorPlan::Change MultiTensorPlan::follow_or_throw(const MultiTensorLists& lists) {
  const Change change = compare(lists);
  if (change == Change::Rebuilt) *this = build_or_throw(lists);
  if (change == Change::Gradients) {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      move_gradient(tensors_[i], lists.grad[i].data);
  }
  return change;
}

void MultiTensorPlan::check_gradients_writable() const {
  constexpr std::string_view kWrite = "multi_tensor gradient write-back";
  constexpr int kGrad = static_cast<int>(Slot::Grad);
  std::vector<std::pair<const std::byte*, Index>> blocks;
  for (Index i = 0; i < tensors(); ++i) {
    const Tensor& t = tensor(i);
    if (t.indirect >= 0 && indirect(t).strided) {
      const TensorView& grad = indirect(t).views[kGrad];
      HONE_CHECK(!overlaps_itself(grad), kWrite,
                 concat(describe(kGrad, i), " without internal overlap"),
                 concat("strides ", to_text(grad.strides), " on shape ", to_text(grad.shape)));
    }
    if (t.elements > 0) blocks.emplace_back(static_cast<const std::byte*>(t.data(kGrad)), i);
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    const auto [address, i] = blocks[b - 1];
    const Tensor& t = tensor(i);
    const bool strided = t.indirect >= 0 && indirect(t).strided;
    const Index item = t.indirect < 0 ? 4 : bytes_of(indirect(t).views[kGrad].dtype);
    const bool apart =
        strided ? address != blocks[b].first : address + t.elements * item <= blocks[b].first;
    HONE_CHECK(apart, kWrite, concat(describe(kGrad, i), " in memory of its own"),
               concat("memory shared with that of tensor ", blocks[b].second));
  }
}

}  // namespace hone::kernels
