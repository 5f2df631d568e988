// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see packed_rows.cc.
#if defined(HONE_KERNELS_GEMM_PACKED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_GEMM_PACKED_ROWS_INL_H_
#undef HONE_KERNELS_GEMM_PACKED_ROWS_INL_H_
#else
#define HONE_KERNELS_GEMM_PACKED_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "hone/kernels/gemm/packed_rows.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest |x| of 32 values. Compares bits, so that NaN and infinity exceed every number.
HWY_INLINE float largest_magnitude(const float* x) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto mask = hn::Set(di, 0x7fffffff);
  auto largest = hn::Zero(di);
  for (Index i = 0; i < kBlockCols; i += static_cast<Index>(hn::Lanes(df))) {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(df, x + i)), mask));
  }
  return hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, largest)));
}

// codes[i] = rne(x[i] * inverse) for 16 columns; returns their sum.
HWY_INLINE std::int32_t round_to_codes(const float* x, float inverse, std::int8_t* codes) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<std::int8_t, decltype(df)> d8;
  const auto factor = hn::Set(df, inverse);
  auto sum = hn::Zero(di);
  for (Index i = 0; i < kBlockCols / 2; i += static_cast<Index>(hn::Lanes(df))) {
    const auto code = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), factor));
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

HWY_INLINE void quantize_block(const float* x, Index lane, std::byte* record) {
  // Below this, the reciprocal would overflow; the block then counts as zero.
  constexpr float kSmallest = 0x1p-118f;
  const float largest = largest_magnitude(x);
  const bool finite = largest <= std::numeric_limits<float>::max();
  auto* const codes = reinterpret_cast<std::int8_t*>(record + lane * kBlockCols);
  std::int32_t first = 0, sum = 0;
  float scale = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  if (finite && largest >= kSmallest) {
    scale = largest / 127.0f;
    constexpr Index kHalf = kBlockCols / 2;
    first = round_to_codes(x, 127.0f / largest, codes);
    sum = first + round_to_codes(x + kHalf, 127.0f / largest, codes + kHalf);
  } else {
    std::memset(codes, 0, kBlockCols);
  }
  std::memcpy(record + kInt8RecordScales + lane * 4, &scale, 4);
  // `negative` is the sum times the zero points of symmetric codes; asymmetric codes use pair[0].
  const std::int16_t pair[] = {static_cast<std::int16_t>(-sum), static_cast<std::int16_t>(-first)};
  const std::int32_t negative[] = {-8 * sum, -128 * sum};
  std::memcpy(record + kInt8RecordSums + lane * 4, pair, 4);
  std::memcpy(record + kInt8RecordSums8 + lane * 4, &negative[0], 4);
  std::memcpy(record + kInt8RecordSums128 + lane * 4, &negative[1], 4);
}

void quantize_one_row(const float* x, Index cols, Index lane, std::byte* group) {
  Index k = 0;
  for (; k + kBlockCols <= cols; k += kBlockCols, group += kInt8Record) {
    quantize_block(x + k, lane, group);
  }
  if (k == cols) return;
  alignas(64) float tail[kBlockCols] = {};
  std::memcpy(tail, x + k, static_cast<std::size_t>(cols - k) * sizeof(float));
  quantize_block(tail, lane, group);
}

// out[4 k + r] = x[r][k]
void interleave_four_rows(const float* const* x, Index cols, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index k = 0;
  for (; k + lanes <= cols; k += lanes) {
    hn::StoreInterleaved4(hn::LoadU(d, x[0] + k), hn::LoadU(d, x[1] + k), hn::LoadU(d, x[2] + k),
                          hn::LoadU(d, x[3] + k), d, out + 4 * k);
  }
  for (; k < cols; ++k) {
    for (Index r = 0; r < kRowGroup; ++r) out[4 * k + r] = x[r][k];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
