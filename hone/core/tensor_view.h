// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>

#include "hone/core/check.h"
#include "hone/core/dtype.h"
#include "hone/core/shape.h"

namespace hone {

// A typed, strided, non-owning view of memory. Strides are in elements. Copying a view never copies
// data.
template <class Byte>
struct BasicTensorView {
  static_assert(sizeof(Byte) == 1);
  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  Void* data = nullptr;
  Dtype dtype = Dtype::Float32;
  Shape shape;
  Shape strides;

  BasicTensorView() = default;
  // Row-major contiguous.
  BasicTensorView(Void* data_in, Dtype dtype_in, const Shape& shape_in)
      : BasicTensorView(data_in, dtype_in, shape_in, shape_in.contiguous_strides()) {}
  BasicTensorView(Void* data_in, Dtype dtype_in, const Shape& shape_in, const Shape& strides_in)
      : data(data_in), dtype(dtype_in), shape(shape_in), strides(strides_in) {}
  // A mutable view converts to a read-only one.
  template <class Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      BasicTensorView(const BasicTensorView<Other>& other)
      : BasicTensorView(other.data, other.dtype, other.shape, other.strides) {}

  Index elements() const { return shape.elements(); }
  Index bytes() const { return elements() * bytes_of(dtype); }
  bool is_contiguous() const { return strides == shape.contiguous_strides(); }
  // Unchecked cast: the caller checks dtype.
  template <class T>
  Element<T>* as() const {
    return static_cast<Element<T>*>(data);
  }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

}  // namespace hone
