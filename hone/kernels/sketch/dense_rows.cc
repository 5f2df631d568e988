// SPDX-License-Identifier: Apache-2.0
#include "hone/kernels/sketch/dense_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hone/kernels/sketch/dense_rows.cc"
#include <hwy/foreach_target.h>

#include "hone/kernels/sketch/dense_rows-inl.h"

#if HWY_ONCE
namespace hone::kernels {

HWY_EXPORT(fill_dense_f32);
HWY_EXPORT(fill_dense_f64);
HWY_EXPORT(scale_signed_f32);
HWY_EXPORT(scale_signed_f64);

void fill_dense(const SketchOp& op, const DensePart& part, float* out) {
  HWY_DYNAMIC_DISPATCH(fill_dense_f32)(op, part, out);
}

void fill_dense(const SketchOp& op, const DensePart& part, double* out) {
  HWY_DYNAMIC_DISPATCH(fill_dense_f64)(op, part, out);
}

void scale_signed(const std::uint32_t* bits, const float* x, Index count, float scale, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_signed_f32)(bits, x, count, scale, y);
}

void scale_signed(const std::uint32_t* bits, const double* x, Index count, double scale,
                  double* y) {
  HWY_DYNAMIC_DISPATCH(scale_signed_f64)(bits, x, count, scale, y);
}

}  // namespace hone::kernels
#endif
