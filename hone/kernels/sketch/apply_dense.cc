// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/buffer.h"
#include "hone/kernels/sketch/apply_kind.h"
#include "hone/kernels/sketch/dense_rows.h"
#include "hone/kernels/sketch/dense_tile.h"
#include "hone/kernels/sketch/sketch_draw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sketch/apply_dense.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sketch/dense_tile-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(multiply_tile_f32);
HWY_EXPORT(multiply_tile_f64);

namespace {

// Columns of S that are generated at once; a multiple of kSignsPerBlock.
constexpr Index kDepth = 256;

void multiply_tile(const DenseTile<float>& tile) { HWY_DYNAMIC_DISPATCH(multiply_tile_f32)(tile); }
void multiply_tile(const DenseTile<double>& tile) { HWY_DYNAMIC_DISPATCH(multiply_tile_f64)(tile); }

// A part [rows, cols] of the result: one task. A normal number takes as long as its products with
// about 100 columns (3.5 ns with AVX2 on an AMD EPYC of family 25), so that tasks are wide; they
// get smaller until each worker has a few. No sum depends on these sizes.
struct TaskSize {
  Index rows = 48, cols = 512;

  TaskSize(Index all_rows, Index all_cols, int workers) {
    const auto tasks = [&] { return ceil_div(all_rows, rows) * ceil_div(all_cols, cols); };
    while (cols > 128 && (cols / 2 >= all_cols || tasks() < 4 * workers)) cols /= 2;
    while (rows > 12 && tasks() < 4 * workers) rows /= 2;
  }
};

template <class T>
class DenseApply {
 public:
  DenseApply(const SketchProduct<T>& product, Executor& executor)
      : product_(product),
        executor_(executor),
        size_(product.out.rows, product.out.cols, executor.workers()),
        sum_stride_(round_up(size_.cols, kWidestPanel<T>)),
        numbers_(size_.rows * kDepth + kDepth * kWidestPanel<T> + size_.rows * sum_stride_),
        scratch_(executor.workers() * numbers_ * static_cast<Index>(sizeof(T))) {}

  void run() {
    const Index across = ceil_div(product_.out.cols, size_.cols);
    const Index tasks = across * ceil_div(product_.out.rows, size_.rows);
    executor_.parallel_for(tasks, 1, [&](Index begin, Index end, int worker) {
      for (Index task = begin; task < end; ++task)
        compute(task / across * size_.rows, task % across * size_.cols, worker);
    });
  }

 private:
  void compute(Index row, Index col, int worker) const {
    const Strided<const T>& b = product_.a;
    T* weights = scratch_.as<T>() + worker * numbers_;
    T* panel = weights + size_.rows * kDepth;
    T* sums = panel + kDepth * kWidestPanel<T>;
    DenseTile<T> tile{.weights = weights,
                      .rows = std::min(size_.rows, product_.out.rows - row),
                      .width = std::min(size_.cols, product_.out.cols - col),
                      .b_row_stride = b.row_stride,
                      .b_col_stride = b.col_stride,
                      .sums = sums,
                      .sum_stride = sum_stride_,
                      .panel = panel};
    std::fill_n(sums, tile.rows * sum_stride_, T{0});
    for (Index first = 0; first < b.rows; first += kDepth) {
      tile.depth = std::min(kDepth, b.rows - first);
      tile.b = &b(first, col);
      DensePart part{row, first, tile.rows, tile.depth, kDepth};
      tile.row_step = kDepth, tile.depth_step = 1;
      if (product_.is_transposed) {
        part = {first, row, tile.depth, tile.rows, size_.rows};
        tile.row_step = 1, tile.depth_step = size_.rows;
      }
      fill_dense(product_.op, part, weights);
      multiply_tile(tile);
    }
    const Strided<T>& out = product_.out;
    unpack(sums, sum_stride_, static_cast<T>(entry_scale(product_.op)),
           {&out(row, col), tile.rows, tile.width, out.row_stride, out.col_stride});
  }

  const SketchProduct<T>& product_;
  Executor& executor_;
  const TaskSize size_;
  const Index sum_stride_, numbers_;
  const Buffer scratch_;
};

}  // namespace

void apply_dense(const SketchProduct<float>& product, Executor& executor) {
  DenseApply<float>(product, executor).run();
}
void apply_dense(const SketchProduct<double>& product, Executor& executor) {
  DenseApply<double>(product, executor).run();
}

}  // namespace hone::kernels
#endif
