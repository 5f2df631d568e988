// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/layout/view_layout.h"

#include <array>

namespace hone::kernels {
namespace {

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

}  // namespace

bool same_strides(const TensorView& a, const TensorView& b) {
  for (int axis = 0; axis < a.shape.rank(); ++axis) {
    if (a.shape[axis] > 1 && a.strides[axis] != b.strides[axis]) return false;
  }
  return true;
}

bool is_dense(const TensorView& view) {
  const SortedDims sorted = sort_dims(view);
  Index expected = 1;
  for (std::size_t i = 0; i < sorted.rank; ++i) {
    if (sorted.dims[i].first != expected) return false;
    expected *= sorted.dims[i].second;
  }
  return true;
}

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

std::pair<std::uintptr_t, std::uintptr_t> byte_range(const TensorView& view) {
  Index reach = 0;
  for (int axis = 0; axis < view.shape.rank(); ++axis) {
    reach += (view.shape[axis] - 1) * view.strides[axis];
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
  return {begin, begin + static_cast<std::uintptr_t>((reach + 1) * bytes_of(view.dtype))};
}

}  // namespace hone::kernels
