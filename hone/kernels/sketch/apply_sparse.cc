// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "hone/core/buffer.h"
#include "hone/kernels/sketch/apply_kind.h"
#include "hone/kernels/sketch/sketch_draw.h"
#include "hone/kernels/sketch/sparse_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sketch/apply_sparse.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sketch/sparse_rows-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(scatter_rows_f32);
HWY_EXPORT(scatter_rows_f64);
HWY_EXPORT(gather_rows_f32);
HWY_EXPORT(gather_rows_f64);

namespace {

constexpr Index kEntriesAtOnce = Index{1} << 18;  // 1 MiB
constexpr Index kVectorsPerTask = 64;

void scatter_rows(const SparseRows<float>& rows) { HWY_DYNAMIC_DISPATCH(scatter_rows_f32)(rows); }
void scatter_rows(const SparseRows<double>& rows) { HWY_DYNAMIC_DISPATCH(scatter_rows_f64)(rows); }
void gather_rows(const SparseRows<float>& rows) { HWY_DYNAMIC_DISPATCH(gather_rows_f32)(rows); }
void gather_rows(const SparseRows<double>& rows) { HWY_DYNAMIC_DISPATCH(gather_rows_f64)(rows); }

template <class T>
class SparseApply {
 public:
  SparseApply(const SketchProduct<T>& product, Executor& executor)
      : product_(product),
        executor_(executor),
        shape_(sparse_shape(product.op)),
        at_once_(std::clamp<Index>(kEntriesAtOnce / shape_.nnz, 1, shape_.count)),
        entries_(at_once_ * shape_.nnz * static_cast<Index>(sizeof(std::uint32_t))),
        scale_(static_cast<T>(entry_scale(product.op))) {}

  void run() {
    const bool scatters = shape_.are_columns != product_.is_transposed;
    if (scatters) start_scatter();
    for (Index first = 0; first < shape_.count; first += at_once_) {
      const Index count = std::min(at_once_, shape_.count - first);
      executor_.parallel_for(count, kVectorsPerTask, [&](Index begin, Index end, int) {
        draw_vectors(product_.op, first + begin, end - begin, entries_of(begin));
      });
      if (scatters) {
        scatter(first, count);
      } else {
        gather(first, count);
      }
    }
    if (scatters) finish_scatter();
  }

 private:
  static constexpr Index kLine = kCacheLine / Index{sizeof(T)};
  static constexpr Index kRowsPacked = 64;

  std::uint32_t* entries_of(Index vector) const {
    return entries_.as<std::uint32_t>() + vector * shape_.nnz;
  }
  bool is_adjacent(const auto& matrix) const { return matrix.col_stride == 1 || matrix.cols == 1; }

  // Sums of a block of columns are together, in at most half of a level-2 cache of 256 KiB if
  // they fit.
  void start_scatter() {
    const Index fit = 131072 / (static_cast<Index>(sizeof(T)) * shape_.length);
    const Index most = is_adjacent(product_.a) ? 16 * kLine : kLine;
    block_ = std::min(std::clamp(fit / kLine * kLine, kLine, most), product_.a.cols);
    blocks_ = ceil_div(product_.a.cols, block_);
    sums_ = Buffer(blocks_ * shape_.length * block_ * static_cast<Index>(sizeof(T)));
  }
  T* sums_of(Index block) const { return sums_.as<T>() + block * shape_.length * block_; }
  Index width_of(Index block) const { return std::min(block_, product_.a.cols - block * block_); }

  void scatter(Index first, Index count) {
    executor_.parallel_for(blocks_, 1, [&](Index begin, Index end, int) {
      for (Index block = begin; block < end; ++block) {
        const Index width = width_of(block);
        const Strided<const T> a = product_.a.columns(block * block_, width);
        SparseRows<T> rows{.nnz = shape_.nnz, .width = width, .to_stride = block_};
        rows.to = sums_of(block);
        if (is_adjacent(a)) {
          rows.entries = entries_of(0);
          rows.count = count;
          rows.from = a.data + first * a.row_stride;
          rows.from_stride = a.row_stride;
          scatter_rows(rows);
          continue;
        }
        T packed[kRowsPacked * kLine];
        rows.from = packed;
        rows.from_stride = kLine;
        for (Index at = 0; at < count; at += kRowsPacked) {
          rows.entries = entries_of(at);
          rows.count = std::min(kRowsPacked, count - at);
          Strided<const T> part = a;
          part.data += (first + at) * a.row_stride;
          part.rows = rows.count;
          pack(part, packed, kLine);
          scatter_rows(rows);
        }
      }
    });
  }

  void finish_scatter() {
    executor_.parallel_for(blocks_, 1, [&](Index begin, Index end, int) {
      for (Index block = begin; block < end; ++block) {
        unpack(sums_of(block), block_, scale_,
               product_.out.columns(block * block_, width_of(block)));
      }
    });
  }

  // From rows of A in place where their numbers are adjacent, otherwise from a copy of a block of
  // columns.
  void gather(Index first, Index count) {
    const bool packs = !is_adjacent(product_.a);
    const Index most = packs || !is_adjacent(product_.out) ? kLine : 16 * kLine;
    const Index width = std::min(most, product_.a.cols);
    const Index blocks = ceil_div(product_.a.cols, width);
    const Index vectors = packs ? count : kVectorsPerTask;
    const Index chunks = ceil_div(count, vectors);
    const Index copy = packs ? round_up(shape_.length * width, kLine) : 0;
    const Buffer copies(executor_.workers() * copy * static_cast<Index>(sizeof(T)));
    executor_.parallel_for(blocks * chunks, 1, [&](Index begin, Index end, int worker) {
      for (Index task = begin; task < end; ++task) {
        const Index col = task / chunks * width, vector = task % chunks * vectors;
        const Index columns = std::min(width, product_.a.cols - col);
        Strided<const T> a = product_.a.columns(col, columns);
        if (packs) {
          T* to = copies.as<T>() + worker * copy;
          pack(a, to, width);
          a = {to, a.rows, columns, width, 1};
        }
        Strided<T> out = product_.out.columns(col, columns);
        out.data += (first + vector) * out.row_stride;
        out.rows = std::min(vectors, count - vector);
        gather_block(a, entries_of(vector), out);
      }
    });
  }

  void gather_block(const Strided<const T>& a, const std::uint32_t* entries,
                    const Strided<T>& out) {
    SparseRows<T> rows{.nnz = shape_.nnz, .width = a.cols, .scale = scale_};
    rows.from = a.data;
    rows.from_stride = a.row_stride;
    if (is_adjacent(out)) {
      rows.entries = entries;
      rows.count = out.rows;
      rows.to = out.data;
      rows.to_stride = out.row_stride;
      gather_rows(rows);
      return;
    }
    T tile[kVectorsPerTask * kLine];
    rows.to = tile;
    rows.to_stride = kLine;
    for (Index at = 0; at < out.rows; at += kVectorsPerTask) {
      rows.entries = entries + at * shape_.nnz;
      rows.count = std::min(kVectorsPerTask, out.rows - at);
      gather_rows(rows);
      unpack(tile, kLine, T{1},
             {&out(at, 0), rows.count, out.cols, out.row_stride, out.col_stride});
    }
  }

  const SketchProduct<T>& product_;
  Executor& executor_;
  const SparseShape shape_;
  const Index at_once_;  // vectors
  const Buffer entries_;
  const T scale_;
  Index block_ = 0, blocks_ = 0;  // of columns
  Buffer sums_;                   // [blocks, length, block]
};

}  // namespace

void apply_sparse(const SketchProduct<float>& product, Executor& executor) {
  SparseApply<float>(product, executor).run();
}
void apply_sparse(const SketchProduct<double>& product, Executor& executor) {
  SparseApply<double>(product, executor).run();
}

}  // namespace hone::kernels
#endif
