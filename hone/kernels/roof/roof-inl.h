// SPDX-License-Identifier: Apache-2.0
// Compiled once per Highway target; see roof.cc.
#if defined(HONE_KERNELS_ROOF_ROOF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_KERNELS_ROOF_ROOF_INL_H_
#undef HONE_KERNELS_ROOF_ROOF_INL_H_
#else
#define HONE_KERNELS_ROOF_ROOF_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "hone/kernels/roof/roof.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

std::uint64_t xor_range(const std::uint64_t* words, Index count) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto x0 = hn::Zero(d);
  auto x1 = x0, x2 = x0, x3 = x0;
  constexpr Index kLine = kCacheLine / Index{sizeof(std::uint64_t)}, kAhead = 1024 / 8 * 4;
  Index i = 0;
  // Prefetches across page boundaries, where the hardware prefetcher stops. A prefetch in front of
  // each load is faster than all prefetches in front of four loads.
  const auto next = [&](Index k, auto x) HWY_ATTR {
    const std::uint64_t* at = words + i + k * lanes;
    if (k * lanes % kLine == 0) hwy::Prefetch(at + kAhead);
    return hn::Xor(x, hn::LoadU(d, at));
  };
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    x0 = next(0, x0);
    x1 = next(1, x1);
    x2 = next(2, x2);
    x3 = next(3, x3);
  }
  HWY_ALIGN std::uint64_t parts[HWY_MAX_BYTES / sizeof(std::uint64_t)];
  hn::Store(hn::Xor(hn::Xor(x0, x1), hn::Xor(x2, x3)), d, parts);
  std::uint64_t result = 0;
  for (Index lane = 0; lane < lanes; ++lane) result ^= parts[lane];
  for (; i < count; ++i) result ^= words[i];
  return result;
}

void copy_range(const std::uint64_t* from, std::uint64_t* to, Index count) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::Load(d, from + i), d, to + i);
  hwy::FlushStream();
  for (; i < count; ++i) to[i] = from[i];
}

void increment_range(std::uint64_t* words, Index count) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto one = hn::Set(d, 1);
  Index i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, words + i), one), d, words + i);
  }
  for (; i < count; ++i) ++words[i];
}

FmaWork fma_chains(Index rounds) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto scale = hn::Set(d, 0.75f), shift = hn::Set(d, 0.25f);
  const auto start = hn::Mul(hn::Iota(d, 0.0f), hn::Set(d, 1.0f / static_cast<float>(lanes)));
  const auto chain = [&](int c)
                         HWY_ATTR { return hn::Add(start, hn::Set(d, static_cast<float>(c))); };
  auto x0 = start, x1 = chain(1), x2 = chain(2), x3 = chain(3), x4 = chain(4), x5 = chain(5);
  auto x6 = chain(6), x7 = chain(7), x8 = chain(8), x9 = chain(9), x10 = chain(10);
  auto x11 = chain(11);
  for (Index round = 0; round < rounds; ++round) {
    x0 = hn::MulAdd(x0, scale, shift);
    x1 = hn::MulAdd(x1, scale, shift);
    x2 = hn::MulAdd(x2, scale, shift);
    x3 = hn::MulAdd(x3, scale, shift);
    x4 = hn::MulAdd(x4, scale, shift);
    x5 = hn::MulAdd(x5, scale, shift);
    x6 = hn::MulAdd(x6, scale, shift);
    x7 = hn::MulAdd(x7, scale, shift);
    x8 = hn::MulAdd(x8, scale, shift);
    x9 = hn::MulAdd(x9, scale, shift);
    x10 = hn::MulAdd(x10, scale, shift);
    x11 = hn::MulAdd(x11, scale, shift);
  }
  const auto low = hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(x4, x5));
  const auto high = hn::Add(hn::Add(hn::Add(x6, x7), hn::Add(x8, x9)), hn::Add(x10, x11));
  const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  return {.flops = 2.0 * static_cast<double>(kFmaChains * lanes * rounds),
          .sum = static_cast<double>(sum),
          .lanes = lanes};
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
