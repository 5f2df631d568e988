// SPDX-License-Identifier: Apache-2.0
// Updates of rows in f64. Compiled once per Highway target; see eigen.cc.
#if defined(HONE_KERNELS_LINALG_ROW_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_LINALG_ROW_UPDATE_INL_H_
#undef HONE_KERNELS_LINALG_ROW_UPDATE_INL_H_
#else
#define HONE_KERNELS_LINALG_ROW_UPDATE_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/core/index.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls step(tag, col) for the columns, a vector at a time and then one at a time.
template <class Step>
HWY_INLINE void for_columns(Index cols, const Step& step) {
  const hn::CappedTag<double, 8> d;
  const hn::CappedTag<double, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index col = 0;
  for (; col + lanes <= cols; col += lanes) step(d, col);
  for (; col < cols; ++col) step(one, col);
}

// row -= a x + b y
void subtract_two_part(double* row, double a, const double* x, double b, const double* y,
                       Index cols) {
  for_columns(cols, [&](auto d, Index col) HWY_ATTR {
    auto value = hn::NegMulAdd(hn::Set(d, a), hn::LoadU(d, x + col), hn::LoadU(d, row + col));
    value = hn::NegMulAdd(hn::Set(d, b), hn::LoadU(d, y + col), value);
    hn::StoreU(value, d, row + col);
  });
}

// x, y = cosine x - sine y, sine x + cosine y
void rotate_part(double* x, double* y, double cosine, double sine, Index cols) {
  for_columns(cols, [&](auto d, Index col) HWY_ATTR {
    const auto c = hn::Set(d, cosine), s = hn::Set(d, sine);
    const auto left = hn::LoadU(d, x + col), right = hn::LoadU(d, y + col);
    hn::StoreU(hn::NegMulAdd(s, right, hn::Mul(c, left)), d, x + col);
    hn::StoreU(hn::MulAdd(s, left, hn::Mul(c, right)), d, y + col);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
