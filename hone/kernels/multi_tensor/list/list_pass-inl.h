// SPDX-License-Identifier: Apache-2.0
// Vector code of list_pass.h, compiled once per Highway target.
#if defined(HONE_LIST_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_LIST_PASS_INL_H_
#undef HONE_LIST_PASS_INL_H_
#else
#define HONE_LIST_PASS_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "hone/kernels/multi_tensor/list/list_pass.h"
#include "hone/kernels/multi_tensor/prefetch.h"
#include "hone/kernels/multi_tensor/schedule/double_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

struct Axpby {
  static constexpr bool kReadsY = true;
  float a, b;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float* y) const {
    const auto scaled = hn::Mul(hn::Set(d, b), hn::LoadU(d, y));
    return hn::MulAdd(hn::Set(d, a), hn::LoadU(d, x), scaled);
  }
};

struct Multiply {
  static constexpr bool kReadsY = true;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float* y) const {
    return hn::Mul(hn::LoadU(d, x), hn::LoadU(d, y));
  }
};

// Comparisons with NaN are false, which leaves it.
struct Clamp {
  static constexpr bool kReadsY = false;
  float lowest, highest;
  template <class D>
  HWY_INLINE hn::Vec<D> apply(D d, const float* x, const float*) const {
    const auto low = hn::Set(d, lowest), high = hn::Set(d, highest), value = hn::LoadU(d, x);
    const auto raised = hn::IfThenElse(hn::Lt(value, low), low, value);
    return hn::IfThenElse(hn::Gt(raised, high), high, raised);
  }
};

template <class Op>
HWY_INLINE void for_each_list_vector(const ListPiece piece, const Op op) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= piece.length; i += lanes) {
    prefetch_ahead(piece.x + i);
    if constexpr (Op::kReadsY) prefetch_ahead(piece.y + i);
    hn::StoreU(op.apply(d, piece.x + i, piece.y + i), d, piece.out + i);
  }
  for (; i < piece.length; ++i) {
    hn::StoreU(op.apply(one, piece.x + i, piece.y + i), one, piece.out + i);
  }
}

void axpby_vectors(const ListPiece& piece, float a, float b) {
  for_each_list_vector(piece, Axpby{a, b});
}
void multiply_vectors(const ListPiece& piece) { for_each_list_vector(piece, Multiply{}); }
void clamp_vectors(const ListPiece& piece, float lowest, float highest) {
  for_each_list_vector(piece, Clamp{lowest, highest});
}

HWY_INLINE void add_abs(const float* from, DoubleVec& even, DoubleVec& odd) {
  even = hn::Add(even, hn::Abs(load_as_double(from)));
  odd = hn::Add(odd, hn::Abs(load_as_double(from + hn::Lanes(Doubles()))));
}

// The tail goes through the same code on a padded copy: zeros add nothing.
double sum_abs_vectors(const float* values, Index length) {
  const Index block = 2 * static_cast<Index>(hn::Lanes(Doubles()));
  DoubleVec even = hn::Zero(Doubles()), odd = even;
  Index i = 0;
  for (; i + block <= length; i += block) {
    prefetch_ahead(values + i);
    add_abs(values + i, even, odd);
  }
  HWY_ALIGN float padded[2 * hn::MaxLanes(Doubles())] = {};
  for (Index j = i; j < length; ++j) padded[j - i] = values[j];
  if (i < length) add_abs(padded, even, odd);
  return sum_lanes(even, odd);
}

// Without their signs, floats are ordered as the integers of the same bits, and NaN lies above inf.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> bits_of_size(D d, const float* from) {
  return hn::BitCast(hn::RebindToSigned<D>(), hn::Abs(hn::LoadU(d, from)));
}

double max_abs_vectors(const float* values, Index length) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const hn::RebindToSigned<decltype(d)> bits;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto largest = hn::Zero(bits);
  Index i = 0;
  for (; i + lanes <= length; i += lanes) {
    prefetch_ahead(values + i);
    largest = hn::Max(largest, bits_of_size(d, values + i));
  }
  std::int32_t best = hn::GetLane(hn::MaxOfLanes(bits, largest));
  for (; i < length; ++i) best = HWY_MAX(best, hn::GetLane(bits_of_size(one, values + i)));
  return std::bit_cast<float>(best);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
