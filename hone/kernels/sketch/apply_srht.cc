// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/buffer.h"
#include "hone/kernels/sketch/apply_kind.h"
#include "hone/kernels/sketch/dense_rows.h"
#include "hone/kernels/sketch/hadamard.h"
#include "hone/kernels/sketch/sketch_draw.h"

namespace hone::kernels {
namespace {

// One column of the product, from and to adjacent numbers where they are adjacent.
template <class T>
void apply_to_column(const SketchProduct<T>& product, const SrhtPlan& plan, Index col, T* buffer) {
  const auto scale = static_cast<T>(entry_scale(product.op));
  const Strided<const T> a = product.a.columns(col, 1);
  const Strided<T> out = product.out.columns(col, 1);
  if (product.is_transposed) {
    std::fill_n(buffer, plan.length, T{0});
    for (Index i = 0; i < a.rows; ++i) buffer[plan.rows[static_cast<std::size_t>(i)]] = a(i, 0);
    hadamard_panel(buffer, plan.length, 1);
    const bool is_direct = out.row_stride == 1;
    T* to = is_direct ? out.data : buffer;
    scale_signed(plan.signs.data(), buffer, out.rows, scale, to);
    if (!is_direct) {
      for (Index i = 0; i < out.rows; ++i) out(i, 0) = buffer[i];
    }
    return;
  }
  const T* from = a.data;
  if (a.row_stride != 1) {
    for (Index i = 0; i < a.rows; ++i) buffer[i] = a(i, 0);
    from = buffer;
  }
  scale_signed(plan.signs.data(), from, a.rows, T{1}, buffer);
  std::fill(buffer + a.rows, buffer + plan.length, T{0});
  hadamard_panel(buffer, plan.length, 1);
  for (Index i = 0; i < out.rows; ++i)
    out(i, 0) = buffer[plan.rows[static_cast<std::size_t>(i)]] * scale;
}

// Columns [col, col + width) together, as rows of a buffer [length, kHadamardWidth].
template <class T>
void apply_to_panel(const SketchProduct<T>& product, const SrhtPlan& plan, Index col, Index width,
                    T* buffer) {
  constexpr Index kWidth = kHadamardWidth<T>;
  const auto scale = static_cast<T>(entry_scale(product.op));
  const Strided<const T> a = product.a.columns(col, width);
  const Strided<T> out = product.out.columns(col, width);
  const auto row_of = [&](Index i) {
    return buffer + kWidth * static_cast<Index>(plan.rows[static_cast<std::size_t>(i)]);
  };
  std::fill_n(buffer, plan.length * kWidth, T{0});
  for (Index i = 0; i < a.rows; ++i) {
    T* to = product.is_transposed ? row_of(i) : buffer + kWidth * i;
    const T sign = !product.is_transposed && plan.is_negative(i) ? T{-1} : T{1};
    for (Index j = 0; j < width; ++j) to[j] = sign * a(i, j);
  }
  hadamard_panel(buffer, plan.length, kWidth);
  for (Index i = 0; i < out.rows; ++i) {
    const T* from = product.is_transposed ? buffer + kWidth * i : row_of(i);
    const T factor = product.is_transposed && plan.is_negative(i) ? -scale : scale;
    for (Index j = 0; j < width; ++j) out(i, j) = factor * from[j];
  }
}

template <class T>
void apply_any(const SketchProduct<T>& product, Executor& executor) {
  const SrhtPlan plan(product.op);
  // The long side decides: its numbers in a column are adjacent or not.
  const Index step = product.is_transposed ? product.out.row_stride : product.a.row_stride;
  const bool is_single = step == 1 || product.a.cols == 1;
  const Index width = is_single ? 1 : kHadamardWidth<T>;
  const Index bytes = round_up(plan.length * width * static_cast<Index>(sizeof(T)), kCacheLine);
  const Buffer scratch(executor.workers() * bytes);
  const Index panels = ceil_div(product.a.cols, width);
  const Index grain = is_single ? rows_per_chunk(plan.length) : 1;
  executor.parallel_for(panels, grain, [&](Index begin, Index end, int worker) {
    T* buffer = reinterpret_cast<T*>(scratch.data() + worker * bytes);
    for (Index col = begin * width; col < std::min(end * width, product.a.cols); col += width) {
      if (is_single) {
        apply_to_column(product, plan, col, buffer);
      } else {
        apply_to_panel(product, plan, col, std::min(width, product.a.cols - col), buffer);
      }
    }
  });
}

}  // namespace

void apply_srht(const SketchProduct<float>& product, Executor& executor) {
  apply_any(product, executor);
}
void apply_srht(const SketchProduct<double>& product, Executor& executor) {
  apply_any(product, executor);
}

}  // namespace hone::kernels
