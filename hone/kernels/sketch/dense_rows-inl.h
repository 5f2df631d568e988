// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see dense_rows.cc. Every lane computes an entry by the same
// operations, so its bits do not depend on its position in a vector.
#if defined(HONE_KERNELS_SKETCH_DENSE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SKETCH_DENSE_ROWS_INL_H_
#undef HONE_KERNELS_SKETCH_DENSE_ROWS_INL_H_
#else
#define HONE_KERNELS_SKETCH_DENSE_ROWS_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "hone/kernels/philox-inl.h"
#include "hone/kernels/sketch/dense_rows.h"
#include "hone/kernels/sketch/sketch_draw.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most 64 bytes.
template <class T>
using SketchTag = hn::CappedTag<T, 64 / sizeof(T)>;

constexpr Index kSketchBlocks = 64;  // drawn at a time
using SketchWords = PhiloxWords<kSketchBlocks>;

template <class T>
using IntsOf = hn::Rebind<std::int32_t, SketchTag<T>>;
template <class T>
using WordsOf = hn::Rebind<std::uint32_t, SketchTag<T>>;

template <class T>
HWY_INLINE hn::Vec<SketchTag<T>> to_real(hn::Vec<IntsOf<T>> v) {
  if constexpr (sizeof(T) == 4) {
    return hn::ConvertTo(SketchTag<T>(), v);
  } else {
    return hn::PromoteTo(SketchTag<T>(), v);
  }
}

// -0 if the highest bit is set, otherwise 0.
template <class T>
HWY_INLINE hn::Vec<SketchTag<T>> sign_of(hn::Vec<WordsOf<T>> words) {
  const auto bits = hn::And(words, hn::Set(WordsOf<T>(), 0x80000000u));
  if constexpr (sizeof(T) == 4) {
    return hn::BitCast(SketchTag<T>(), bits);
  } else {
    const hn::RebindToUnsigned<SketchTag<T>> du;
    return hn::BitCast(SketchTag<T>(), hn::ShiftLeft<32>(hn::PromoteTo(du, bits)));
  }
}

// The coefficients of the Taylor series: (-1)^(k/2) / k!.
constexpr std::array<double, 18> taylor_series() {
  std::array<double, 18> series{1, 1};
  for (int k = 2; k < 18; ++k) series[k] = -series[k - 2] / (k * (k - 1));
  return series;
}

// sin x and cos x for |x| <= pi/4, to the rounding of T.
template <class T, class V>
HWY_INLINE void sine_cosine(V x, V& sine, V& cosine) {
  const SketchTag<T> d;
  constexpr std::array<double, 18> kSeries = taylor_series();
  const auto square = hn::Mul(x, x);
  sine = hn::Zero(d);
  cosine = hn::Zero(d);
  for (int k = sizeof(T) == 4 ? 10 : 16; k >= 0; k -= 2) {
    cosine = hn::MulAdd(cosine, square, hn::Set(d, static_cast<T>(kSeries[k])));
    sine = hn::MulAdd(sine, square, hn::Set(d, static_cast<T>(kSeries[k + 1])));
  }
  sine = hn::Mul(sine, x);
}

// Computes two normal numbers from two words, like gaussian_ref() in sketch_ref.cc.
template <class T, class V>
HWY_INLINE void box_muller(hn::Vec<WordsOf<T>> word, hn::Vec<WordsOf<T>> angle, V scale, V& first,
                           V& second) {
  const SketchTag<T> d;
  const IntsOf<T> di;
  const WordsOf<T> dw;
  const auto count = to_real<T>(hn::BitCast(di, hn::ShiftRight<9>(word)));
  const auto uniform = hn::MulAdd(count, hn::Set(d, T{0x1p-23}), hn::Set(d, T{0x1p-24}));
  const auto square = hn::Mul(hn::Log(d, uniform), hn::Set(d, T{-2}));
  const auto radius = hn::Mul(hn::Sqrt(hn::Max(square, hn::Zero(d))), scale);
  const auto turn = to_real<T>(hn::BitCast(di, hn::Or(hn::ShiftLeft<2>(angle), hn::Set(dw, 2u))));
  constexpr double kPi = 3.14159265358979323846;
  V sine, cosine;
  sine_cosine<T>(hn::Mul(turn, hn::Set(d, static_cast<T>(kPi / 4 * 0x1p-31))), sine, cosine);
  // The highest two bits are the quadrant. Odd quadrants exchange sine and cosine; 2 and 3 negate
  // the sine, 1 and 2 the cosine.
  const auto exchange = hn::Or(sign_of<T>(hn::ShiftLeft<1>(angle)), hn::Set(d, T{1}));
  const auto is_odd = hn::Lt(exchange, hn::Zero(d));
  const auto cosine_sign = sign_of<T>(hn::Add(angle, hn::Set(dw, 0x40000000u)));
  const auto sine_sign = sign_of<T>(angle);
  first = hn::Mul(radius, hn::Xor(hn::IfThenElse(is_odd, sine, cosine), cosine_sign));
  second = hn::Mul(radius, hn::Xor(hn::IfThenElse(is_odd, cosine, sine), sine_sign));
}

template <class T>
HWY_INLINE void fill_gaussian_row(const SketchOp& op, Index row, const DensePart& part, T* out) {
  const SketchTag<T> d;
  const WordsOf<T> dw;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  constexpr Index kEntries = kSketchBlocks * kGaussiansPerBlock;
  const auto scale = hn::Set(d, static_cast<T>(part.scale));
  SketchWords drawn;
  HWY_ALIGN T values[kEntries];
  const Index end = part.col0 + part.cols;
  for (Index col = part.col0; col < end;) {
    const Index block = col / kGaussiansPerBlock, begin = block * kGaussiansPerBlock;
    const Index stop = std::min(end, begin + kEntries);
    const Index blocks = ceil_div(stop - begin, kGaussiansPerBlock);
    draw_blocks(op.seed, sketch_counter(op, row, block), blocks, drawn);
    for (Index i = 0; i < blocks; i += lanes) {
      auto v0 = hn::Zero(d), v1 = v0, v2 = v0, v3 = v0;
      box_muller<T>(hn::LoadU(dw, drawn.words[0] + i), hn::LoadU(dw, drawn.words[1] + i), scale, v0,
                    v1);
      box_muller<T>(hn::LoadU(dw, drawn.words[2] + i), hn::LoadU(dw, drawn.words[3] + i), scale, v2,
                    v3);
      hn::StoreInterleaved4(v0, v1, v2, v3, d, values + i * kGaussiansPerBlock);
    }
    std::copy(values + (col - begin), values + (stop - begin), out + (col - part.col0));
    col = stop;
  }
}

// Returns v with the sign inverted in lanes whose bit is set; `lane_bits` has 1 << lane.
template <class T, class V>
HWY_INLINE V flip_signs(std::uint32_t bits, hn::Vec<hn::RebindToUnsigned<SketchTag<T>>> lane_bits,
                        V v) {
  const SketchTag<T> d;
  const hn::RebindToUnsigned<SketchTag<T>> du;
  const auto is_set = hn::Ne(hn::And(hn::Set(du, bits), lane_bits), hn::Zero(du));
  return hn::IfThenElse(hn::RebindMask(d, is_set), hn::Neg(v), v);
}

template <class T>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<SketchTag<T>>> make_lane_bits() {
  const hn::RebindToUnsigned<SketchTag<T>> du;
  return hn::Shl(hn::Set(du, 1), hn::Iota(du, 0));
}

template <class T>
HWY_INLINE void fill_sign_row(const SketchOp& op, Index row, const DensePart& part, T* out) {
  const SketchTag<T> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  constexpr Index kBlocks = 4, kEntries = kBlocks * kSignsPerBlock;
  const auto size = hn::Set(d, static_cast<T>(part.scale));
  const auto lane_bits = make_lane_bits<T>();
  SketchWords drawn;
  HWY_ALIGN T values[kEntries];
  const Index end = part.col0 + part.cols;
  for (Index col = part.col0; col < end;) {
    const Index block = col / kSignsPerBlock, begin = block * kSignsPerBlock;
    const Index stop = std::min(end, begin + kEntries);
    draw_blocks(op.seed, sketch_counter(op, row, block), ceil_div(stop - begin, kSignsPerBlock),
                drawn);
    for (Index word = (col - begin) / 32; word < ceil_div(stop - begin, 32); ++word) {
      const std::uint32_t bits = drawn.words[word % 4][word / 4];
      for (Index i = 0; i < 32; i += lanes)
        hn::StoreU(flip_signs<T>(bits >> i, lane_bits, size), d, values + 32 * word + i);
    }
    std::copy(values + (col - begin), values + (stop - begin), out + (col - part.col0));
    col = stop;
  }
}

template <class T>
HWY_INLINE void fill_dense_rows(const SketchOp& op, const DensePart& part, T* out) {
  for (Index row = part.row0; row < part.row0 + part.rows; ++row, out += part.stride) {
    if (op.kind == SketchKind::Gaussian) {
      fill_gaussian_row(op, row, part, out);
    } else {
      fill_sign_row(op, row, part, out);
    }
  }
}

void fill_dense_f32(const SketchOp& op, const DensePart& part, float* out) {
  fill_dense_rows(op, part, out);
}
void fill_dense_f64(const SketchOp& op, const DensePart& part, double* out) {
  fill_dense_rows(op, part, out);
}

template <class T>
HWY_INLINE void scale_signed_row(const std::uint32_t* bits, const T* x, Index count, T scale,
                                 T* y) {
  const SketchTag<T> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scales = hn::Set(d, scale);
  const auto lane_bits = make_lane_bits<T>();
  Index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(flip_signs<T>(bits[i / 32] >> i % 32, lane_bits, v), d, y + i);
  }
  for (; i < count; ++i) y[i] = bits[i / 32] >> i % 32 & 1 ? -(x[i] * scale) : x[i] * scale;
}

void scale_signed_f32(const std::uint32_t* bits, const float* x, Index count, float scale,
                      float* y) {
  scale_signed_row(bits, x, count, scale, y);
}
void scale_signed_f64(const std::uint32_t* bits, const double* x, Index count, double scale,
                      double* y) {
  scale_signed_row(bits, x, count, scale, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
