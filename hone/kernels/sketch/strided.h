// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of sketch operators: matrices with strides, and their checks.
#pragma once

#include <cstddef>
#include <string_view>

#include "hone/core/tensor_view.h"

namespace hone::kernels {

// A matrix whose element (i, j) is data[i * row_stride + j * col_stride].
template <class T>
struct Strided {
  T* data = nullptr;
  Index rows = 0, cols = 0, row_stride = 0, col_stride = 0;

  Strided transposed() const { return {data, cols, rows, col_stride, row_stride}; }
  Strided columns(Index first, Index count) const {
    return {data + first * col_stride, rows, count, row_stride, col_stride};
  }
  T& operator()(Index i, Index j) const { return data[i * row_stride + j * col_stride]; }
};

template <class T, class Byte>
auto as_strided(const BasicTensorView<Byte>& view) {
  return Strided<typename BasicTensorView<Byte>::template Element<T>>{
      view.template as<T>(), view.shape[0], view.shape[1], view.strides[0], view.strides[1]};
}

// Copies `from` to to [rows, cols], whose rows are `stride` apart. The inner loop of this and of
// unpack() runs along the smaller stride.
template <class T>
void pack(const Strided<const T>& from, T* to, Index stride) {
  if (from.row_stride < from.col_stride) {
    for (Index j = 0; j < from.cols; ++j) {
      for (Index i = 0; i < from.rows; ++i) to[i * stride + j] = from(i, j);
    }
  } else {
    for (Index i = 0; i < from.rows; ++i) {
      for (Index j = 0; j < from.cols; ++j) to[i * stride + j] = from(i, j);
    }
  }
}

// to = scale * from [rows, cols], whose rows are `stride` apart.
template <class T>
void unpack(const T* from, Index stride, T scale, const Strided<T>& to) {
  if (to.row_stride < to.col_stride) {
    for (Index j = 0; j < to.cols; ++j) {
      for (Index i = 0; i < to.rows; ++i) to(i, j) = scale * from[i * stride + j];
    }
  } else {
    for (Index i = 0; i < to.rows; ++i) {
      for (Index j = 0; j < to.cols; ++j) to(i, j) = scale * from[i * stride + j];
    }
  }
}

// The bytes from the first element of a matrix to the end of the last one.
struct ByteRange {
  const std::byte *begin = nullptr, *end = nullptr;

  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

// Throws Error{InvalidArgument} that begins with [op] and names the view unless it is a matrix in
// f32 or f64 with data, without negative sizes or strides, and inside the address space.
ByteRange check_matrix(std::string_view op, std::string_view name, const ConstTensorView& view);
// Like check_matrix(); also throws if two elements of the output overlap.
ByteRange check_output(std::string_view op, std::string_view name, const ConstTensorView& view);

}  // namespace hone::kernels
