// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see logit_row.cc.
#if defined(HONE_KERNELS_SAMPLING_LOGIT_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_SAMPLING_LOGIT_ROW_INL_H_
#undef HONE_KERNELS_SAMPLING_LOGIT_ROW_INL_H_
#else
#define HONE_KERNELS_SAMPLING_LOGIT_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "hone/kernels/sampling/logit_row.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using LogitTag = hn::CappedTag<float, 16>;

// Returns the largest lane. Highway's EMU128 returns the lowest finite number if all lanes are
// -infinity.
HWY_INLINE float largest_logit(hn::Vec<LogitTag> v) {
  const LogitTag d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  if (hn::AllTrue(d, hn::Eq(v, hn::Set(d, kLowest)))) return kLowest;
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

LogitRange logit_range_row(const float* logits, Index count) {
  const LogitTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto top = hn::Neg(infinity);
  auto is_finite = hn::Lt(hn::Zero(d), infinity);
  Index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, logits + i);
    top = hn::Max(top, v);
    is_finite = hn::And(is_finite, hn::Lt(hn::Abs(v), infinity));
  }
  LogitRange range{.highest = largest_logit(top), .is_finite = hn::AllTrue(d, is_finite)};
  for (; i < count; ++i) {
    range.highest = std::max(range.highest, logits[i]);
    range.is_finite = range.is_finite && std::isfinite(logits[i]);
  }
  return range;
}

void group_maxima_row(const float* logits, Index count, float* maxima) {
  const LogitTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index first = 0;
  for (; first + kLogitGroup <= count; first += kLogitGroup) {
    auto top = hn::LoadU(d, logits + first);
    for (Index i = lanes; i < kLogitGroup; i += lanes) {
      top = hn::Max(top, hn::LoadU(d, logits + first + i));
    }
    maxima[first / kLogitGroup] = largest_logit(top);
  }
  if (first < count) {
    maxima[first / kLogitGroup] = *std::max_element(logits + first, logits + count);
  }
}

// Returns true if one of the kLogitGroup logits is >= bound.
HWY_INLINE bool group_reaches(const float* logits, float bound) {
  const LogitTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto bounds = hn::Set(d, bound);
  auto any = hn::Ge(hn::LoadU(d, logits), bounds);
  for (Index i = lanes; i < kLogitGroup; i += lanes) {
    any = hn::Or(any, hn::Ge(hn::LoadU(d, logits + i), bounds));
  }
  return !hn::AllFalse(d, any);
}

Index first_at_least_row(const float* logits, Index count, float bound) {
  Index i = 0;
  while (i + kLogitGroup <= count && !group_reaches(logits + i, bound)) i += kLogitGroup;
  while (i < count && !(logits[i] >= bound)) ++i;
  return i;
}

Index collect_at_least_row(const float* logits, Index count, float bound, std::int32_t* ids) {
  Index found = 0;
  for (Index first = 0; first < count; first += kLogitGroup) {
    const Index end = std::min(count, first + kLogitGroup);
    if (end == first + kLogitGroup && !group_reaches(logits + first, bound)) continue;
    for (Index i = first; i < end; ++i) {  // found <= i, so there is space for each id
      ids[found] = static_cast<std::int32_t>(i);
      found += logits[i] >= bound ? 1 : 0;
    }
  }
  return found;
}

// 2^43 e^x for x <= 0; 0 below -40. Products and sums are rounded separately, because some
// instruction sets have no fused operation. e^x = 2^n e^r with |r| <= log(2) / 2 and the Taylor
// series of e^r, whose remainder is below 2^-26.
HWY_INLINE hn::Vec<LogitTag> scaled_exp(hn::Vec<LogitTag> x) {
  const LogitTag d;
  const hn::RebindToSigned<LogitTag> di;
  constexpr float kLog2High = 0x1.62ep-1f, kLog2Low = 0x1.0bfbe8p-15f, kLog2E = 1.44269504f;
  const auto is_zero = hn::Lt(x, hn::Set(d, -40.0f));
  const auto limited = hn::Max(x, hn::Set(d, -41.0f));
  const auto n = hn::Round(hn::Mul(limited, hn::Set(d, kLog2E)));
  const auto r = hn::Sub(hn::Sub(limited, hn::Mul(n, hn::Set(d, kLog2High))),
                         hn::Mul(n, hn::Set(d, kLog2Low)));
  constexpr float kInverseFactorials[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                          1.0f / 2,   1.0f,       1.0f};
  auto sum = hn::Set(d, 1.0f / 5040);
  for (const float term : kInverseFactorials) sum = hn::Add(hn::Mul(sum, r), hn::Set(d, term));
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127 + 43));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
  return hn::IfThenElse(is_zero, hn::Zero(d), hn::Mul(sum, power));
}

// Rounds 64 values below 2^51 to integers by adding 2^52, whose unit in the last place is 1.
HWY_INLINE void round_to_integers(const float* HWY_RESTRICT values,
                                  std::uint64_t* HWY_RESTRICT out) {
  const hn::CappedTag<double, 8> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto shift = hn::Set(d, 0x1p52);
  for (Index i = 0; i < kLogitGroup; i += lanes) {
    const auto value = hn::Add(hn::PromoteTo(d, hn::LoadU(df, values + i)), shift);
    hn::StoreU(hn::Sub(hn::BitCast(du, value), hn::BitCast(du, shift)), du, out + i);
  }
}

// Computes the masses of 64 logits.
HWY_INLINE void mass_group(const float* logits, float highest, float temperature,
                           std::uint64_t* HWY_RESTRICT masses) {
  const LogitTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto shift = hn::Set(d, highest), divisor = hn::Set(d, temperature);
  HWY_ALIGN float exponentials[kLogitGroup];
  for (Index i = 0; i < kLogitGroup; i += lanes) {
    const auto x = hn::Div(hn::Sub(hn::LoadU(d, logits + i), shift), divisor);
    hn::StoreU(scaled_exp(x), d, exponentials + i);
  }
  round_to_integers(exponentials, masses);
}

std::uint64_t softmax_masses_row(const float* logits, Index count, float highest, float temperature,
                                 std::uint64_t* masses) {
  Index first = 0;
  for (; first + kLogitGroup <= count; first += kLogitGroup) {
    mass_group(logits + first, highest, temperature, masses + first);
  }
  if (first < count) {
    HWY_ALIGN float padded[kLogitGroup];
    HWY_ALIGN std::uint64_t rest[kLogitGroup];
    std::fill_n(padded, kLogitGroup, highest);
    std::copy(logits + first, logits + count, padded);
    mass_group(padded, highest, temperature, rest);
    std::copy_n(rest, count - first, masses + first);
  }
  std::uint64_t total = 0;
  for (Index i = 0; i < count; ++i) total += masses[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
