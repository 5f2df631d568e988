// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hone::kernels {
namespace {

constexpr std::string_view kOp = "multi_tensor plan";
constexpr std::array<std::string_view, kSlots> kSlotNames{"param", "grad", "momentum",
                                                          "second_moment", "extra"};

const std::span<const TensorView>& list_of(const MultiTensorLists& lists, int slot) {
  const std::array all{&lists.param, &lists.grad, &lists.momentum, &lists.second_moment,
                       &lists.extra};
  return *all[static_cast<std::size_t>(slot)];
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
  HONE_CHECK(lists.group.size() == count, kOp, concat(count, " group numbers"), lists.group.size());
  HONE_CHECK(lists.step.size() == count, kOp, concat(count, " step counters"), lists.step.size());
}

// Strides of dimensions of size one mean nothing.
bool same_strides(const TensorView& a, const TensorView& b) {
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

// (stride, size) of the dimensions larger than one, smallest stride first.
struct SortedDims {
  std::array<std::pair<Index, Index>, Shape::kMaxRank> dims;
  std::size_t rank = 0;
};

SortedDims sort_dims(const TensorView& view) {
  SortedDims sorted;
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    if (view.shape[axis] <= 1) continue;
    const std::pair<Index, Index> dim{view.strides[axis], view.shape[axis]};
    std::size_t at = sorted.rank++;
    for (; at > 0 && dim < sorted.dims[at - 1]; --at) sorted.dims[at] = sorted.dims[at - 1];
    sorted.dims[at] = dim;
  }
  return sorted;
}

// One block without holes or overlap, in whatever order of dimensions?
bool is_dense(const TensorView& view) {
  const SortedDims sorted = sort_dims(view);
  Index expected = 1;
  for (std::size_t i = 0; i < sorted.rank; ++i) {
    if (sorted.dims[i].first != expected) return false;
    expected *= sorted.dims[i].second;
  }
  return true;
}

// Does an element of the view share its address with another one? Sufficient for what frameworks
// make: expanded dimensions, and strides smaller than what they step over.
bool overlaps_itself(const TensorView& view) {
  const SortedDims sorted = sort_dims(view);
  Index reach = 0;
  for (std::size_t i = 0; i < sorted.rank; ++i) {
    const auto [stride, size] = sorted.dims[i];
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

// [begin, end) of the bytes a view can touch.
struct ByteRange {
  std::uintptr_t begin = 0, end = 0;
  Index tensor = 0;
  int slot = 0;
  bool dense = true;
};

ByteRange range_of(const TensorView& view, Index tensor, int slot) {
  Index reach = 0;
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    reach += (view.shape[axis] - 1) * view.strides[axis];
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  return {begin, begin + static_cast<std::uintptr_t>(reach + 1) * sizeof(float), tensor, slot,
          is_dense(view)};
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

std::uint64_t layout_of(std::uint64_t hash, const TensorView& view) {
  hash = mix(hash, static_cast<std::uint64_t>(view.dtype));
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    hash = mix(hash, static_cast<std::uint64_t>(view.shape[axis]));
    if (view.shape[axis] > 1) hash = mix(hash, static_cast<std::uint64_t>(view.strides[axis]));
  }
  return hash;
}

// Of every slot but the gradient's.
std::uint64_t layout_of(const MultiTensorLists& lists, std::size_t at) {
  std::uint64_t hash = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto& list = list_of(lists, slot);
    if (slot != static_cast<int>(Slot::Grad) && !list.empty()) {
      hash = layout_of(mix(hash, static_cast<std::uint64_t>(slot)), list[at]);
    }
  }
  return hash;
}

std::vector<ByteRange> sorted_ranges(const MultiTensorLists& lists) {
  std::vector<ByteRange> ranges;
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto& list = list_of(lists, slot);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].elements() > 0) ranges.push_back(range_of(list[i], static_cast<Index>(i), slot));
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  return ranges;
}

void check_view(const TensorView& view, const TensorView& param, int slot, Index i) {
  if (view.dtype != Dtype::Float32) {
    fail_unsupported(kOp, concat("fp32 for ", describe(slot, i)), name_of(view.dtype));
  }
  HONE_CHECK(view.shape == param.shape, kOp,
             concat(describe(slot, i), " of shape ", to_text(param.shape)), to_text(view.shape));
  HONE_CHECK(view.data != nullptr || view.elements() == 0, kOp,
             concat("memory for ", describe(slot, i)), "none");
  if (slot == static_cast<int>(Slot::Grad)) return;
  HONE_CHECK(same_strides(view, param), kOp, concat(describe(slot, i), " in the layout of param"),
             concat("strides ", to_text(view.strides)));
  HONE_CHECK(!overlaps_itself(view), kOp, concat(describe(slot, i), " without internal overlap"),
             concat("strides ", to_text(view.strides), " on shape ", to_text(view.shape)));
}

}  // namespace

void MultiTensorPlan::add_tensor(const MultiTensorLists& lists, Index i) {
  const auto at = static_cast<std::size_t>(i);
  const TensorView& param = lists.param[at];
  Tensor tensor;
  tensor.elements = param.elements();
  tensor.first_chunk = chunks();
  tensor.group = lists.group[at];
  tensor.layout = layout_of(lists, at);
  tensor.grad_layout = layout_of(0, lists.grad[at]);
  StridedViews views;
  bool flat = is_dense(param);
  for (int slot = 0; slot < kSlots; ++slot) {
    const auto& list = list_of(lists, slot);
    if (list.empty()) continue;
    check_view(list[at], param, slot, i);
    tensor.data[slot] = list[at].as<float>();
    views.views[slot] = list[at];
    flat = flat && same_strides(list[at], param);
  }
  if (!flat) {
    tensor.strided = static_cast<std::int32_t>(strided_.size());
    strided_.push_back(views);
  }
  for (Index offset = 0; offset < tensor.elements; offset += kChunkElements) {
    chunks_.push_back({i, offset, std::min(kChunkElements, tensor.elements - offset)});
  }
  elements_ += tensor.elements;
  tensors_.push_back(tensor);
}

void MultiTensorPlan::cut_units() {
  Index filled = 0;
  for (Index c = 0; c < chunks(); ++c) {
    const Chunk& chunk = chunks_[static_cast<std::size_t>(c)];
    const bool whole = chunk.length == tensor(chunk.tensor).elements;
    const bool fits = !units_.empty() && filled + chunk.length <= kChunkElements &&
                      whole_.back() == static_cast<std::uint8_t>(whole);
    if (!fits) {
      units_.push_back({c, c});
      whole_.push_back(static_cast<std::uint8_t>(whole));
      filled = 0;
    }
    units_.back().end = c + 1;
    filled += chunk.length;
  }
}

// Everything written must be disjoint from everything else. Gradients may coincide with each other.
void MultiTensorPlan::check_disjoint(const MultiTensorLists& lists) {
  const std::vector<ByteRange> ranges = sorted_ranges(lists);
  // Of the ranges so far: the last one, and the dense ones that reach furthest.
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

bool MultiTensorPlan::touches_written_memory(const TensorView& grad) const {
  if (grad.elements() == 0) return false;
  const ByteRange range = range_of(grad, 0, static_cast<int>(Slot::Grad));
  if (!range.dense) return true;  // let the full check decide
  // The ranges are disjoint: the last one that begins before the gradient ends is the only
  // candidate.
  const auto after = std::upper_bound(written_.begin(), written_.end(),
                                      std::pair(range.end - 1, ~std::uintptr_t{0}));
  return after != written_.begin() && std::prev(after)->second > range.begin;
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

MultiTensorPlan::Change MultiTensorPlan::compare(const MultiTensorLists& lists) const {
  check_lengths(lists);
  if (static_cast<Index>(lists.param.size()) != tensors()) return Change::Rebuilt;
  if (lists.step.data() != step_.data()) return Change::Rebuilt;
  Change change = Change::None;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& known = tensors_[i];
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto& list = list_of(lists, slot);
      const float* address = list.empty() ? nullptr : list[i].as<float>();
      if (address == known.data[slot]) continue;
      if (slot != static_cast<int>(Slot::Grad)) return Change::Rebuilt;
      change = Change::Gradients;
    }
    if (lists.group[i] != known.group || layout_of(lists, i) != known.layout ||
        layout_of(0, lists.grad[i]) != known.grad_layout) {
      return Change::Rebuilt;
    }
  }
  return change;
}

bool MultiTensorPlan::matches(const MultiTensorLists& lists) const {
  return compare(lists) == Change::None;
}

MultiTensorPlan::Change MultiTensorPlan::follow_or_throw(const MultiTensorLists& lists) {
  const Change change = compare(lists);
  if (change == Change::None) return change;
  const bool patch =
      change == Change::Gradients &&
      std::none_of(lists.grad.begin(), lists.grad.end(),
                   [&](const TensorView& grad) { return touches_written_memory(grad); });
  if (!patch) {
    *this = build_or_throw(lists);
    return Change::Rebuilt;
  }
  constexpr int kGrad = static_cast<int>(Slot::Grad);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].data[kGrad] = lists.grad[i].as<float>();
    if (tensors_[i].strided >= 0) {
      strided_[static_cast<std::size_t>(tensors_[i].strided)].views[kGrad] = lists.grad[i];
    }
  }
  return change;
}

void MultiTensorPlan::check_gradients_writable() const {
  constexpr std::string_view kWrite = "multi_tensor gradient write-back";
  std::vector<std::pair<const float*, Index>> blocks;
  for (Index i = 0; i < tensors(); ++i) {
    const Tensor& t = tensor(i);
    if (t.strided >= 0) {
      const TensorView& grad = strided(t).views[static_cast<int>(Slot::Grad)];
      HONE_CHECK(!overlaps_itself(grad), kWrite,
                 concat(describe(static_cast<int>(Slot::Grad), i), " without internal overlap"),
                 concat("strides ", to_text(grad.strides), " on shape ", to_text(grad.shape)));
    }
    if (t.elements > 0) blocks.emplace_back(t.slot(Slot::Grad), i);
  }
  std::sort(blocks.begin(), blocks.end());
  for (std::size_t b = 1; b < blocks.size(); ++b) {
    const auto [address, i] = blocks[b - 1];
    const bool apart = tensor(i).strided < 0 ? address + tensor(i).elements <= blocks[b].first
                                             : address != blocks[b].first;
    HONE_CHECK(apart, kWrite,
               concat(describe(static_cast<int>(Slot::Grad), i), " in memory of its own"),
               concat("memory shared with that of tensor ", blocks[b].second));
  }
}

}  // namespace hone::kernels
