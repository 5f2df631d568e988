// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/multi_tensor/codec/strided_copy.h"

#include <algorithm>

namespace hone::kernels {
namespace {

// Calls run(base, stride, count) for each piece of a row of the last dimension.
template <class Run>
void for_each_run(const TensorView& view, Index offset, Index length, const Run& run) {
  const int rank = view.shape.rank();
  if (rank == 0) {
    run(Index{0}, Index{1}, length);
    return;
  }
  Shape at = view.shape;  // multi-index of element `offset`
  Index rest = offset;
  for (int axis = rank - 1; axis >= 0; --axis) {
    at[axis] = rest % view.shape[axis];
    rest /= view.shape[axis];
  }
  const int last = rank - 1;
  while (length > 0) {
    Index base = 0;
    for (int axis = 0; axis < rank; ++axis) base += at[axis] * view.strides[axis];
    const Index count = std::min(length, view.shape[last] - at[last]);
    run(base, view.strides[last], count);
    length -= count;
    at[last] = 0;
    for (int axis = last - 1; axis >= 0 && ++at[axis] == view.shape[axis]; --axis) at[axis] = 0;
  }
}

}  // namespace

void copy_from_strided(const TensorView& from, Index offset, Index length, float* to) {
  const float* data = from.as<float>();
  for_each_run(from, offset, length, [&](Index base, Index stride, Index count) {
    for (Index i = 0; i < count; ++i) *to++ = data[base + i * stride];
  });
}

void copy_to_strided(const float* from, const TensorView& to, Index offset, Index length) {
  float* data = to.as<float>();
  for_each_run(to, offset, length, [&](Index base, Index stride, Index count) {
    for (Index i = 0; i < count; ++i) data[base + i * stride] = *from++;
  });
}

}  // namespace hone::kernels
