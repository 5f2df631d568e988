// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/hadamard.h"

#include <bit>

#include "hone/core/check.h"
#include "hone/core/machine/trace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sketch/hadamard.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sketch/hadamard-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(transform_rows_f32);
HWY_EXPORT(transform_rows_f64);

namespace {

void check(const TensorView& x) {
  constexpr std::string_view kOp = "fwht_rows";
  HONE_CHECK(x.shape.rank() == 2 && x.strides.rank() == 2, kOp, "x [rows, n]", to_text(x.shape));
  const Index rows = x.shape[0], n = x.shape[1];
  HONE_CHECK(x.dtype == Dtype::Float32 || x.dtype == Dtype::Float64, kOp, "x in f32 or f64",
             name_of(x.dtype));
  HONE_CHECK(rows >= 0, kOp, "rows >= 0", rows);
  HONE_CHECK(n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)), kOp,
             "a power of two of columns", n);
  HONE_CHECK((n == 1 || x.strides[1] == 1) && (rows < 2 || x.strides[0] >= n), kOp,
             concat("adjacent columns and rows that are at least ", n, " apart"),
             concat("strides ", to_text(x.strides)));
  HONE_REQUIRE(rows == 0 || x.data != nullptr, kOp, "The data of x are null.");
}

}  // namespace

void fwht_rows(const TensorView& x, Executor& executor) {
  check(x);
  const Index rows = x.shape[0], n = x.shape[1], stride = x.strides[0];
  HONE_TRACE_ZONE("fwht_rows", {"rows", rows}, {"n", n});
  executor.parallel_for(rows, rows_per_chunk(n), [&](Index begin, Index end, int) {
    if (x.dtype == Dtype::Float32) {
      float* from = x.as<float>() + begin * stride;
      HWY_DYNAMIC_DISPATCH(transform_rows_f32)(from, end - begin, stride, n, 1);
    } else {
      double* from = x.as<double>() + begin * stride;
      HWY_DYNAMIC_DISPATCH(transform_rows_f64)(from, end - begin, stride, n, 1);
    }
  });
}

void hadamard_panel(float* x, Index length, Index width) {
  HWY_DYNAMIC_DISPATCH(transform_rows_f32)(x, 1, 0, length * width, width);
}

void hadamard_panel(double* x, Index length, Index width) {
  HWY_DYNAMIC_DISPATCH(transform_rows_f64)(x, 1, 0, length * width, width);
}

}  // namespace hone::kernels
#endif
