// SPDX-License-Identifier: Apache-2.0
// Vector code of loss_scale.h, compiled once per Highway target.
#if defined(HONE_LOSS_SCALE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_LOSS_SCALE_INL_H_
#undef HONE_LOSS_SCALE_INL_H_
#else
#define HONE_LOSS_SCALE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "hone/kernels/multi_tensor/codec/loss_scale.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ScaleDoubles = hn::ScalableTag<double>;
using ScaleFloats = hn::Rebind<float, ScaleDoubles>;  // as many floats as fit a vector of doubles
using ScaleWords = hn::RebindToSigned<ScaleFloats>;

// fp32 arithmetic that rounds as fp16 does, on every target. Normal numbers are rounded by adding
// half a step to the bits, subnormals by adding 0.5, whose last bit is 2^-24. (Without the sign,
// bits compare as signed numbers.)
template <class D>
HWY_INLINE hn::Vec<D> nearest_f16(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::BitCast(di, hn::Abs(x));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto up = hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff)), odd);
  const auto normal = hn::And(up, hn::Set(di, ~0x1fff));
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal = hn::BitCast(di, hn::Sub(hn::Add(hn::BitCast(d, magnitude), half), half));
  const auto infinity = hn::Set(di, 0x7f800000);
  const auto is_small = hn::Lt(magnitude, hn::Set(di, 0x38800000));  // 2^-14
  const auto is_large = hn::Lt(hn::Set(di, 0x477fefff), magnitude);  // from 65,520 on
  const auto is_nan = hn::Lt(infinity, magnitude);
  auto rounded = hn::IfThenElse(is_small, subnormal, normal);
  rounded = hn::IfThenElse(is_large, infinity, rounded);
  rounded = hn::IfThenElse(is_nan, magnitude, rounded);
  return hn::CopySignToAbs(hn::BitCast(d, rounded), x);
}

void round_f16(const float* from, float* to, Index length) {
  const hn::ScalableTag<float> d;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), whole = length / lanes * lanes;
  for (Index i = 0; i < whole; i += lanes) {
    hn::StoreU(nearest_f16(d, hn::LoadU(d, from + i)), d, to + i);
  }
  HWY_ALIGN float tail[hn::MaxLanes(d)] = {};
  std::copy(from + whole, from + length, tail);
  hn::Store(nearest_f16(d, hn::Load(d, tail)), d, tail);
  std::copy(tail, tail + (length - whole), to + whole);
}

HWY_INLINE void unscale_vector(float* at, float inv_scale, hn::Vec<ScaleDoubles>& squares) {
  const ScaleFloats d;
  const auto g = hn::LoadU(d, at);
  const auto wide = hn::PromoteTo(ScaleDoubles(), g);
  squares = hn::MulAdd(wide, wide, squares);
  hn::StoreU(hn::Mul(g, hn::Set(d, inv_scale)), d, at);
}

double unscale(float* grad, Index length, float inv_scale) {
  const ScaleDoubles dd;
  const ScaleFloats d;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), pairs = length / (2 * lanes) * 2 * lanes;
  auto even = hn::Zero(dd), odd = even;
  for (Index i = 0; i < pairs; i += 2 * lanes) {
    unscale_vector(grad + i, inv_scale, even);
    unscale_vector(grad + i + lanes, inv_scale, odd);
  }
  HWY_ALIGN float tail[2 * hn::MaxLanes(d)] = {};
  std::copy(grad + pairs, grad + length, tail);
  unscale_vector(tail, inv_scale, even);
  unscale_vector(tail + lanes, inv_scale, odd);
  std::copy(tail, tail + (length - pairs), grad + pairs);
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(even, odd)));
}

// Counts the parts of a chunk before they are added to the statistics. There are four tables, so
// that equal values in a row do not wait for each other's increment.
struct F16Tally {
  static constexpr Index kSlots =
      512;  // index (bits - 1) >> 23: bins; 255, 256 not finite; 511 zero
  std::uint32_t tables[4][kSlots] = {};
  Index underflows = 0, subnormals = 0, overflows = 0;

  void add_to(F16Statistics& into, Index padding) const {
    const auto count = [&](Index slot) {
      return Index{tables[0][slot]} + tables[1][slot] + tables[2][slot] + tables[3][slot];
    };
    for (Index b = 0; b < F16Statistics::kBins; ++b)
      into.bins[static_cast<std::size_t>(b)] += count(b);
    into.nonfinite += count(255) + count(256);
    into.zeros += count(511) - padding;
    into.underflows += underflows;
    into.subnormals += subnormals;
    into.overflows += overflows;
  }
};

// `bits` has the bits of |x|.
HWY_INLINE void count_slots(hn::Vec<ScaleWords> bits, F16Tally& tally) {
  const ScaleWords di;
  const hn::RebindToUnsigned<ScaleFloats> du;
  const auto infinite = hn::Lt(hn::Set(di, 0x7f7fffff), bits);
  const auto past_bins = hn::IfThenElseZero(infinite, hn::Set(di, 0x800000));
  const auto shifted = hn::Add(hn::Sub(bits, hn::Set(di, 1)), past_bins);
  HWY_ALIGN std::uint32_t slots[hn::MaxLanes(du)];
  hn::Store(hn::ShiftRight<23>(hn::BitCast(du, shifted)), du, slots);
  const std::size_t lanes = hn::Lanes(du);
  for (std::size_t lane = 0; lane < lanes; ++lane) ++tally.tables[lane % 4][slots[lane]];
}

HWY_INLINE void measure_vector(const float* at, float factor, float scale, F16Tally& tally,
                               hn::Vec<ScaleWords>& largest, hn::Vec<ScaleDoubles>& squares,
                               hn::Vec<ScaleDoubles>& errors) {
  const ScaleDoubles dd;
  const ScaleFloats d;
  const ScaleWords di;
  const auto infinity = hn::Set(di, 0x7f800000), zero = hn::Zero(di);
  const auto smallest_normal = hn::Set(di, 0x38800000);  // 2^-14
  const auto x = hn::Mul(hn::LoadU(d, at), hn::Set(d, factor));
  const auto scaled = hn::Mul(x, hn::Set(d, scale)), rounded = nearest_f16(d, scaled);
  const auto bits = hn::BitCast(di, hn::Abs(x)), kept = hn::BitCast(di, hn::Abs(rounded));
  const auto finite = hn::Lt(bits, infinity);
  const auto fits = hn::Lt(kept, infinity);  // false where x is not finite, too
  count_slots(bits, tally);
  const auto lost = hn::Eq(kept, zero), was_zero = hn::Eq(bits, zero);
  const auto small = hn::Lt(kept, smallest_normal);
  tally.underflows += static_cast<Index>(hn::CountTrue(di, hn::AndNot(was_zero, lost)));
  tally.subnormals += static_cast<Index>(hn::CountTrue(di, hn::AndNot(lost, small)));
  tally.overflows += static_cast<Index>(hn::CountTrue(di, hn::AndNot(fits, finite)));
  largest = hn::Max(largest, hn::IfThenElseZero(finite, bits));
  const auto held = hn::RebindMask(d, fits);
  const auto wide = hn::PromoteTo(dd, hn::IfThenElseZero(held, x));
  const auto error = hn::PromoteTo(dd, hn::IfThenElseZero(held, hn::Sub(scaled, rounded)));
  squares = hn::MulAdd(wide, wide, squares);
  errors = hn::MulAdd(error, error, errors);
}

void measure(const float* values, Index length, float factor, float scale, F16Statistics& into) {
  const ScaleDoubles dd;
  const ScaleFloats d;
  const ScaleWords di;
  auto squares = hn::Zero(dd), errors = squares;
  auto largest = hn::Zero(di);
  F16Tally tally;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), whole = length / lanes * lanes;
  for (Index i = 0; i < whole; i += lanes) {
    measure_vector(values + i, factor, scale, tally, largest, squares, errors);
  }
  HWY_ALIGN float tail[hn::MaxLanes(d)] = {};
  std::copy(values + whole, values + length, tail);
  measure_vector(tail, factor, scale, tally, largest, squares, errors);
  tally.add_to(into, whole + lanes - length);
  into.square_sum += hn::GetLane(hn::SumOfLanes(dd, squares));
  into.error_square_sum += hn::GetLane(hn::SumOfLanes(dd, errors)) / scale / scale;
  into.largest =
      std::max(into.largest, std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest))));
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
