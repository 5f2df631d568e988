// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see apply_sparse.cc.
#if defined(HONE_KERNELS_SKETCH_SPARSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SKETCH_SPARSE_ROWS_INL_H_
#undef HONE_KERNELS_SKETCH_SPARSE_ROWS_INL_H_
#else
#define HONE_KERNELS_SKETCH_SPARSE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/sketch/sparse_rows.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using RowTag = hn::CappedTag<T, 64 / sizeof(T)>;

// -0 for an odd entry, otherwise 0. Has no branch, because random signs are unpredictable.
template <class D>
HWY_INLINE hn::Vec<D> entry_sign(D d, std::uint32_t entry) {
  const hn::RebindToUnsigned<D> du;
  using Bits = hn::TFromD<decltype(du)>;
  return hn::BitCast(d, hn::Set(du, static_cast<Bits>(Bits{entry} << (8 * sizeof(Bits) - 1))));
}

// Adds row i of `from`, with the signs of vector i, to the rows of `to` at the positions of vector
// i.
template <class T>
HWY_INLINE void scatter_rows(const SparseRows<T>& rows) {
  const RowTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto add = [&](auto tag, std::uint32_t entry, const T* from, T* to) HWY_ATTR {
    const auto v = hn::Xor(hn::LoadU(tag, from), entry_sign(tag, entry));
    hn::StoreU(hn::Add(hn::LoadU(tag, to), v), tag, to);
  };
  for (Index i = 0; i < rows.count; ++i) {
    const T* from = rows.from + i * rows.from_stride;
    for (Index k = 0; k < rows.nnz; ++k) {
      const std::uint32_t entry = rows.entries[i * rows.nnz + k];
      T* to = rows.to + static_cast<Index>(entry >> 1) * rows.to_stride;
      Index j = 0;
      for (; j + lanes <= rows.width; j += lanes) add(d, entry, from + j, to + j);
      for (; j < rows.width; ++j) add(one, entry, from + j, to + j);
    }
  }
}

// Computes kVectors vectors of row i of `to` from column j on: scale times the sum of the rows of
// `from` at the positions of vector i, with its signs.
template <int kVectors, class T, class D>
HWY_INLINE void gather_columns(const SparseRows<T>& rows, D d, Index i, Index j) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (Index k = 0; k < rows.nnz; ++k) {
    const std::uint32_t entry = rows.entries[i * rows.nnz + k];
    const T* from = rows.from + static_cast<Index>(entry >> 1) * rows.from_stride + j;
    const auto sign = entry_sign(d, entry);
    sum0 = hn::Add(sum0, hn::Xor(hn::LoadU(d, from), sign));
    if constexpr (kVectors == 4) {
      sum1 = hn::Add(sum1, hn::Xor(hn::LoadU(d, from + lanes), sign));
      sum2 = hn::Add(sum2, hn::Xor(hn::LoadU(d, from + 2 * lanes), sign));
      sum3 = hn::Add(sum3, hn::Xor(hn::LoadU(d, from + 3 * lanes), sign));
    }
  }
  const auto scale = hn::Set(d, rows.scale);
  T* to = rows.to + i * rows.to_stride + j;
  hn::StoreU(hn::Mul(sum0, scale), d, to);
  if constexpr (kVectors == 4) {
    hn::StoreU(hn::Mul(sum1, scale), d, to + lanes);
    hn::StoreU(hn::Mul(sum2, scale), d, to + 2 * lanes);
    hn::StoreU(hn::Mul(sum3, scale), d, to + 3 * lanes);
  }
}

template <class T>
HWY_INLINE void gather_rows(const SparseRows<T>& rows) {
  const RowTag<T> d;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index i = 0; i < rows.count; ++i) {
    Index j = 0;
    for (; j + 4 * lanes <= rows.width; j += 4 * lanes) gather_columns<4>(rows, d, i, j);
    for (; j + lanes <= rows.width; j += lanes) gather_columns<1>(rows, d, i, j);
    for (; j < rows.width; ++j) gather_columns<1>(rows, one, i, j);
  }
}

void scatter_rows_f32(const SparseRows<float>& rows) { scatter_rows(rows); }
void scatter_rows_f64(const SparseRows<double>& rows) { scatter_rows(rows); }
void gather_rows_f32(const SparseRows<float>& rows) { gather_rows(rows); }
void gather_rows_f64(const SparseRows<double>& rows) { gather_rows(rows); }

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
