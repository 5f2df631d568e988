// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/strided.h"

#include <cstddef>
#include <limits>

namespace hone::kernels {
namespace {

// From the first to behind the last element; false on overflow.
bool span_bytes(const ConstTensorView& view, Index& bytes) {
  Index elements = 1;
  for (int axis = 0; axis < 2; ++axis) {
    Index extent = 0;
    if (__builtin_mul_overflow(view.shape[axis] - 1, view.strides[axis], &extent) ||
        __builtin_add_overflow(elements, extent, &elements)) {
      return false;
    }
  }
  return !__builtin_mul_overflow(elements, bytes_of(view.dtype), &bytes);
}

// Whether step `outer` over `count` elements, `inner` apart, passes them all.
bool steps_over(Index outer, Index inner, Index count) {
  Index extent = 0;
  return inner > 0 && !__builtin_mul_overflow(inner, count, &extent) && outer >= extent;
}

}  // namespace

ByteRange check_matrix(std::string_view op, std::string_view name, const ConstTensorView& view) {
  HONE_CHECK(view.shape.rank() == 2 && view.strides.rank() == 2, op,
             concat("a matrix ", name, " [rows, cols]"), to_text(view.shape));
  HONE_CHECK(view.dtype == Dtype::Float32 || view.dtype == Dtype::Float64, op,
             concat(name, " in f32 or f64"), name_of(view.dtype));
  HONE_CHECK(view.shape[0] >= 0 && view.shape[1] >= 0, op, concat("sizes >= 0 of ", name),
             to_text(view.shape));
  HONE_CHECK(view.strides[0] >= 0 && view.strides[1] >= 0, op, concat("strides >= 0 of ", name),
             to_text(view.strides));
  if (view.shape[0] == 0 || view.shape[1] == 0) return {};
  HONE_REQUIRE(view.data != nullptr, op, concat("The data of ", name, " are null."));
  Index bytes = 0;
  HONE_CHECK(span_bytes(view, bytes), op, concat(name, " inside the address space"),
             concat("shape ", to_text(view.shape), " with strides ", to_text(view.strides)));
  const auto* begin = static_cast<const std::byte*>(view.data);
  return {begin, begin + bytes};
}

ByteRange check_output(std::string_view op, std::string_view name, const ConstTensorView& view) {
  const ByteRange range = check_matrix(op, name, view);
  const Index rows = view.shape[0], cols = view.shape[1];
  constexpr Index kMost = std::numeric_limits<Index>::max();
  const Index row = rows > 1 ? view.strides[0] : kMost, col = cols > 1 ? view.strides[1] : kMost;
  const bool is_apart =
      rows == 0 || cols == 0 || steps_over(row, col, cols) || steps_over(col, row, rows);
  HONE_CHECK(is_apart, op, concat("elements of ", name, " that share no memory"),
             concat("shape ", to_text(view.shape), " with strides ", to_text(view.strides)));
  return range;
}

}  // namespace hone::kernels
