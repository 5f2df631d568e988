// SPDX-License-Identifier: Apache-2.0
// Vector code of statistics.h, compiled once per Highway target.
#if defined(HONE_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_STATISTICS_INL_H_
#undef HONE_STATISTICS_INL_H_
#else
#define HONE_STATISTICS_INL_H_
#endif

#include <hwy/highway.h>

#include "hone/kernels/multi_tensor/limit-inl.h"
#include "hone/kernels/multi_tensor/prefetch.h"
#include "hone/kernels/multi_tensor/schedule/statistics.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using HalfFloats = hn::Rebind<float, Doubles>;  // as many floats as fit a vector of doubles
using DoubleVec = hn::Vec<Doubles>;

HWY_INLINE DoubleVec load_as_double(const float* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(HalfFloats(), from));
}

HWY_INLINE double sum_lanes(DoubleVec a, DoubleVec b) {
  return hn::GetLane(hn::SumOfLanes(Doubles(), hn::Add(a, b)));
}

// Loads gradients without a limit.
struct LoadAll {
  HWY_INLINE DoubleVec operator()(const float* from) const { return load_as_double(from); }
};
// Loads gradients limited to ±limit; NaN stays NaN.
struct LoadLimited {
  float limit;
  HWY_INLINE DoubleVec operator()(const float* from) const {
    const HalfFloats d;
    return hn::PromoteTo(Doubles(), limit_magnitude(d, hn::LoadU(d, from), limit));
  }
};

// Two sets of running sums hide the latency of the additions. (Vectors of scalable instruction sets
// cannot be members, hence the plain variables here and below.)
HWY_INLINE void gather_gg(const float* grad, Index length, double* sums) {
  const Index lanes = static_cast<Index>(hn::Lanes(Doubles()));
  DoubleVec even = hn::Zero(Doubles()), odd = even;
  for (Index i = 0; i < length; i += 2 * lanes) {
    prefetch_ahead(grad + i);
    const DoubleVec a = load_as_double(grad + i), b = load_as_double(grad + i + lanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  sums[0] += sum_lanes(even, odd);
}

template <class LoadGrad>
HWY_INLINE void gather_momentum(const float* grad, const float* momentum, Index length,
                                LoadGrad load_grad, double* sums) {
  const Index lanes = static_cast<Index>(hn::Lanes(Doubles()));
  DoubleVec gg0 = hn::Zero(Doubles()), gg1 = gg0, mg0 = gg0, mg1 = gg0, mm0 = gg0, mm1 = gg0;
  for (Index i = 0; i < length; i += 2 * lanes) {
    prefetch_ahead(grad + i);
    prefetch_ahead(momentum + i);
    const DoubleVec g0 = load_grad(grad + i), g1 = load_grad(grad + i + lanes);
    const DoubleVec m0 = load_as_double(momentum + i), m1 = load_as_double(momentum + i + lanes);
    gg0 = hn::MulAdd(g0, g0, gg0);
    gg1 = hn::MulAdd(g1, g1, gg1);
    mg0 = hn::MulAdd(m0, g0, mg0);
    mg1 = hn::MulAdd(m1, g1, mg1);
    mm0 = hn::MulAdd(m0, m0, mm0);
    mm1 = hn::MulAdd(m1, m1, mm1);
  }
  sums[0] += sum_lanes(gg0, gg1);
  sums[1] += sum_lanes(mg0, mg1);
  sums[2] += sum_lanes(mm0, mm1);
}

template <class LoadGrad>
HWY_INLINE void gather_param(const ChunkOperands& chunk, Index length, LoadGrad load_grad,
                             double* sums) {
  const Index lanes = static_cast<Index>(hn::Lanes(Doubles()));
  DoubleVec mp0 = hn::Zero(Doubles()), mp1 = mp0, gp0 = mp0, gp1 = mp0, pp0 = mp0, pp1 = mp0;
  for (Index i = 0; i < length; i += 2 * lanes) {
    const Index j = i + lanes;
    const DoubleVec p0 = load_as_double(chunk.param + i), p1 = load_as_double(chunk.param + j);
    mp0 = hn::MulAdd(load_as_double(chunk.momentum + i), p0, mp0);
    mp1 = hn::MulAdd(load_as_double(chunk.momentum + j), p1, mp1);
    gp0 = hn::MulAdd(load_grad(chunk.grad + i), p0, gp0);
    gp1 = hn::MulAdd(load_grad(chunk.grad + j), p1, gp1);
    pp0 = hn::MulAdd(p0, p0, pp0);
    pp1 = hn::MulAdd(p1, p1, pp1);
  }
  sums[3] += sum_lanes(mp0, mp1);
  sums[4] += sum_lanes(gp0, gp1);
  sums[5] += sum_lanes(pp0, pp1);
}

// `length` is a multiple of two vectors of doubles.
template <Statistics kKind, class LoadGrad>
HWY_INLINE void gather_vectors(const ChunkOperands& chunk, Index length, LoadGrad load_grad,
                               double* sums) {
  if constexpr (kKind == Statistics::Norm) {
    gather_gg(chunk.grad, length, sums);
  } else {
    gather_momentum(chunk.grad, chunk.momentum, length, load_grad, sums);
    // A second sweep: the chunk is in cache, and six pairs of sums would not fit the registers.
    if constexpr (kKind == Statistics::TorqueWithDecay) {
      gather_param(chunk, length, load_grad, sums);
    }
  }
}

// The tail goes through the same code on a padded copy: zeros add nothing.
template <Statistics kKind, class LoadGrad = LoadAll>
HWY_INLINE void gather(const ChunkOperands& chunk, double* sums, LoadGrad load_grad = {}) {
  constexpr Index kMaxBlock = 2 * hn::MaxLanes(Doubles());
  const Index block = 2 * static_cast<Index>(hn::Lanes(Doubles()));
  const Index whole = chunk.length / block * block;
  for (Index s = 0; s < count_sums(kKind); ++s) sums[s] = 0;
  gather_vectors<kKind>(chunk, whole, load_grad, sums);
  if (whole == chunk.length) return;
  HWY_ALIGN float padded[3][kMaxBlock] = {};
  for (Index i = whole; i < chunk.length; ++i) {
    padded[0][i - whole] = chunk.grad[i];
    if constexpr (kKind != Statistics::Norm) padded[1][i - whole] = chunk.momentum[i];
    if constexpr (kKind == Statistics::TorqueWithDecay) padded[2][i - whole] = chunk.param[i];
  }
  gather_vectors<kKind>({.param = padded[2], .grad = padded[0], .momentum = padded[1]}, block,
                        load_grad, sums);
}

inline void gather_norm(const ChunkOperands& chunk, double* sums) {
  gather<Statistics::Norm>(chunk, sums);
}
inline void gather_torque(const ChunkOperands& chunk, double* sums) {
  gather<Statistics::Torque>(chunk, sums);
}
inline void gather_torque_with_decay(const ChunkOperands& chunk, double* sums) {
  gather<Statistics::TorqueWithDecay>(chunk, sums);
}
inline void gather_limited_torque(const ChunkOperands& chunk, double* sums) {
  gather<Statistics::Torque>(chunk, sums, LoadLimited{chunk.grad_limit});
}
inline void gather_limited_torque_with_decay(const ChunkOperands& chunk, double* sums) {
  gather<Statistics::TorqueWithDecay>(chunk, sums, LoadLimited{chunk.grad_limit});
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
