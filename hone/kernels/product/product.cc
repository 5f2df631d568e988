// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/product/product.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"
#include "hone/kernels/product/product_part.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/product/product.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/product/product-inl.h"
#include "hone/kernels/product/vector_product-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(multiply_part);
HWY_EXPORT(multiply_columns_part);
HWY_EXPORT(multiply_rows_part);

namespace {

void check(const ProductArgs& args) {
  constexpr std::string_view kName = "multiply";
  const auto& [a, b, bias, out] = args;
  const auto sizes = [](const auto& m) { return concat("[", m.rows, ", ", m.cols, "]"); };
  HONE_CHECK(a.rows >= 0 && a.cols >= 0 && b.cols >= 0 && b.rows == a.cols, kName,
             concat("b with as many rows as a ", sizes(a), " has columns"), sizes(b));
  HONE_CHECK(out.rows == a.rows && out.cols == b.cols, kName,
             concat("out [", a.rows, ", ", b.cols, "]"), sizes(out));
  HONE_CHECK(b.col_stride == 1 || b.row_stride == 1, kName, "b with contiguous rows or columns",
             concat("strides of ", b.row_stride, " and ", b.col_stride));
  HONE_CHECK(out.col_stride == 1 && out.row_stride >= out.cols, kName, "out with contiguous rows",
             concat("strides of ", out.row_stride, " and ", out.col_stride));
}

}  // namespace

void multiply(const ProductArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("product", {"rows", args.out.rows}, {"cols", args.out.cols},
                  {"depth", args.a.cols});
  check(args);
  const Index rows = args.out.rows, cols = args.out.cols;
  if (rows == 0 || cols == 0) return;
  // Four tasks for each worker, but not so small that a task's share of the fixed work is large:
  // tasks of rows pack b, tasks of columns read short pieces of its rows.
  const Index tasks = 4 * executor.workers();
  if (args.b.col_stride == 1 && rows < kFewVectors) {  // tiles read b in bits
    // Whole pages of a row, and 4 KiB of sums, which stay in the level-1 cache.
    constexpr Index kMost = 1024, kMultiple = 64;
    const Index share = std::min(ceil_div(cols, 2 * Index{executor.workers()}), kMost);
    const Index grain = round_up(std::max(share, rows_per_chunk(args.a.cols)), kMultiple);
    executor.parallel_for(cols, grain, [&](Index begin, Index end, int) {
      HWY_DYNAMIC_DISPATCH(multiply_rows_part)(args, begin, end);
    });
  } else if (args.b.col_stride == 1) {
    constexpr Index kLeast = 64, kMost = 256, kMultiple = 32;
    const Index grain = std::clamp(round_up(ceil_div(cols, tasks), kMultiple), kLeast, kMost);
    executor.parallel_for(cols, grain, [&](Index begin, Index end, int) {
      HWY_DYNAMIC_DISPATCH(multiply_part)(args, {0, rows, begin, end});
    });
  } else {
    constexpr Index kLeast = 48;
    const Index share = ceil_div(rows, Index{executor.workers()});
    const Index grain = std::max(ceil_div(rows, tasks), std::min(kLeast, share));
    executor.parallel_for(rows, grain, [&](Index begin, Index end, int) {
      HWY_DYNAMIC_DISPATCH(multiply_part)(args, {begin, end, 0, cols});
    });
  }
}

void multiply_columns(const ProductArgs& args, Executor& executor) {
  HONE_TRACE_ZONE("product_columns", {"rows", args.out.rows}, {"cols", args.out.cols},
                  {"depth", args.a.cols});
  check(args);
  HONE_CHECK(args.a.col_stride == 1 && args.b.row_stride == 1, "multiply_columns",
             "a with contiguous rows and b with contiguous columns",
             concat("strides of ", args.a.col_stride, " and ", args.b.row_stride));
  if (args.out.rows == 0 || args.out.cols == 0) return;
  executor.parallel_for(args.out.rows, round_up(rows_per_chunk(args.a.cols), Index{4}),
                        [&](Index begin, Index end, int) {
                          HWY_DYNAMIC_DISPATCH(multiply_columns_part)(args, begin, end);
                        });
}

}  // namespace hone::kernels
#endif
