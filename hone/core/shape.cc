// SPDX-License-Identifier: Apache-2.0
#include "hone/core/shape.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone {

Shape::Shape(std::span<const Index> dims) : rank_(static_cast<int>(dims.size())) {
  HONE_CHECK(dims.size() <= kMaxRank, "Shape", "at most 8 dimensions", dims.size());
  std::ranges::copy(dims, dims_.begin());
}

Index Shape::elements() const {
  Index product = 1;
  for (Index dim : dims()) product *= dim;
  return product;
}

Shape Shape::contiguous_strides() const {
  Shape strides = *this;
  Index step = 1;
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= (*this)[axis];
  }
  return strides;
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    text += concat(axis == 0 ? "" : ", ", shape[axis]);
  }
  return text + "]";
}

}  // namespace hone
