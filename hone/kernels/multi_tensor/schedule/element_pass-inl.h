// SPDX-License-Identifier: Apache-2.0
// Vector code of element_pass.h, compiled once per Highway target.
#if defined(HONE_ELEMENT_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_ELEMENT_PASS_INL_H_
#undef HONE_ELEMENT_PASS_INL_H_
#else
#define HONE_ELEMENT_PASS_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/multi_tensor/prefetch.h"
#include "hone/kernels/multi_tensor/schedule/element_pass.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Operations. kStreams is the number of inputs x and y that come from memory and need prefetching.

struct Axpby {
  static constexpr int kStreams = 2;
  float a, b;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float* y) const {
    const auto scaled = hn::Mul(hn::Set(d, b), hn::LoadU(d, y));
    return hn::MulAdd(hn::Set(d, a), hn::LoadU(d, x), scaled);
  }
};

struct Multiply {
  static constexpr int kStreams = 2;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float* y) const {
    return hn::Mul(hn::LoadU(d, x), hn::LoadU(d, y));
  }
};

// Comparisons with NaN are false, so NaN does not change.
struct Clamp {
  static constexpr int kStreams = 1;
  float lowest, highest;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float*) const {
    const auto low = hn::Set(d, lowest), high = hn::Set(d, highest), value = hn::LoadU(d, x);
    const auto raised = hn::IfThenElse(hn::Lt(value, low), low, value);
    return hn::IfThenElse(hn::Gt(raised, high), high, raised);
  }
};

struct Scale {
  static constexpr int kStreams = 0;
  float factor;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float*) const {
    return hn::Mul(hn::LoadU(d, x), hn::Set(d, factor));
  }
};

struct Average {
  static constexpr int kStreams = 0;
  float share;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float* y) const {
    const auto kept = hn::LoadU(d, y);
    return hn::MulAdd(hn::Set(d, share), hn::Sub(hn::LoadU(d, x), kept), kept);
  }
};

template <class Op>
HWY_INLINE void for_each_piece_vector(const ElementPiece piece, const Op op) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= piece.length; i += lanes) {
    if constexpr (Op::kStreams > 0) prefetch_ahead(piece.x + i);
    if constexpr (Op::kStreams > 1) prefetch_ahead(piece.y + i);
    hn::StoreU(op.apply(d, piece.x + i, piece.y + i), d, piece.out + i);
  }
  for (; i < piece.length; ++i) {
    hn::StoreU(op.apply(one, piece.x + i, piece.y + i), one, piece.out + i);
  }
}

void axpby_vectors(const ElementPiece& piece, float a, float b) {
  for_each_piece_vector(piece, Axpby{a, b});
}
void multiply_vectors(const ElementPiece& piece) { for_each_piece_vector(piece, Multiply{}); }
void clamp_vectors(const ElementPiece& piece, float lowest, float highest) {
  for_each_piece_vector(piece, Clamp{lowest, highest});
}
void scale_vectors(const ElementPiece& piece, float factor) {
  for_each_piece_vector(piece, Scale{factor});
}
void average_vectors(const ElementPiece& piece, float share) {
  for_each_piece_vector(piece, Average{share});
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
