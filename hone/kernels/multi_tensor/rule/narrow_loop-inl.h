// SPDX-License-Identifier: Apache-2.0
// Runs one rule over a chunk whose moments are bf16 or 8-bit codes in memory, without a copy of
// them in f32; compiled once per Highway target.
#if defined(HONE_NARROW_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HONE_NARROW_LOOP_INL_H_
#undef HONE_NARROW_LOOP_INL_H_
#else
#define HONE_NARROW_LOOP_INL_H_
#endif

#include "hone/kernels/multi_tensor/codec/state_codec-inl.h"
#include "hone/kernels/multi_tensor/layout/chunk_operands.h"
#include "hone/kernels/multi_tensor/limit-inl.h"
#include "hone/kernels/multi_tensor/prefetch.h"
#include "hone/kernels/multi_tensor/rule/rule_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hone::kernels {
namespace HWY_NAMESPACE {

// Steps the vector at element i. `m` and `v` are its moments.
template <class Rule, class Scalars>
HWY_INLINE void step_moments(const ChunkOperands& chunk, const Scalars& scalars, Index i,
                             FloatVec& m, FloatVec& v) {
  const Floats d;
  FloatVec p = hn::LoadU(d, chunk.param + i), x = p;
  FloatVec g = mul(hn::LoadU(d, chunk.grad + i), hn::Set(d, scalars.grad_scale));
  if (chunk.grad_limit < kInfinity) g = limit_magnitude(d, g, chunk.grad_limit);
  if constexpr (Rule::kExtra) x = hn::LoadU(d, chunk.extra + i);
  Rule::apply(scalars, p, g, m, v, x);
  hn::StoreU(p, d, chunk.param + i);
  if constexpr (Rule::kExtra) hn::StoreU(x, d, chunk.extra + i);
}

template <class Rule, class Scalars>
HWY_INLINE void step_bf16_moments(const ChunkOperands& chunk, const Scalars& scalars) {
  const Floats d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  auto* momentum = static_cast<std::uint16_t*>(chunk.narrow->momentum.chunk.data);
  auto* second = static_cast<std::uint16_t*>(chunk.narrow->second_moment.chunk.data);
  auto counters_m = first_counters(chunk.narrow->momentum.rounding);
  auto counters_v = first_counters(chunk.narrow->second_moment.rounding);
  const auto stride = counter_stride();
  for (Index i = 0; i < chunk.length; i += lanes) {
    FloatVec m = hn::Zero(d), v = m;
    if constexpr (Rule::kMomentum) m = decode_bf16_vector(momentum + i);
    if constexpr (Rule::kSecondMoment) v = decode_bf16_vector(second + i);
    prefetch_ahead(chunk.param + i);
    prefetch_ahead(chunk.grad + i);
    step_moments<Rule>(chunk, scalars, i, m, v);
    if constexpr (Rule::kMomentum) {
      prefetch_ahead(momentum + i);
      encode_bf16_vector(m, counters_m, /*nearest=*/false, momentum + i);
      counters_m = hn::Add(counters_m, stride);
    }
    if constexpr (Rule::kSecondMoment) {
      prefetch_ahead(second + i);
      encode_bf16_vector(v, counters_v, /*nearest=*/false, second + i);
      counters_v = hn::Add(counters_v, stride);
    }
  }
}

// One moment of a block, from its step until it is coded.
struct SteppedMoment {
  HWY_ALIGN float values[kCodeBlock];
  BlockScale scale;
};
struct SteppedBlock {
  SteppedMoment momentum, second_moment;
};

HWY_INLINE std::uint8_t* codes_of(const NarrowMoment& moment, Index block) {
  return static_cast<std::uint8_t*>(moment.chunk.data) + block * kCodeBlock;
}
HWY_INLINE CodecBits block_counters(const NarrowMoment& moment, Index block) {
  const RoundingKey& rounding = moment.rounding;
  return first_counters({rounding.key, rounding.first_element + block * kCodeBlock});
}
HWY_INLINE void keep(FloatVec value, Index i, SteppedMoment& moment, CodecBits& largest) {
  hn::StoreU(value, Floats(), moment.values + i);
  largest = larger_magnitude(largest, value);
}
template <bool kSigned>
HWY_INLINE void code(const SteppedMoment& moment, Index i, CodecBits& counters,
                     std::uint8_t* codes) {
  const auto factor = hn::Set(Floats(), moment.scale.up);
  encode_vector<kSigned>(hn::LoadU(Floats(), moment.values + i), factor,
                         random_vector(counters, /*nearest=*/false), codes + i);
  counters = hn::Add(counters, counter_stride());
}
template <bool kSigned>
HWY_INLINE void finish_codes(const SteppedMoment& stepped, Index block,
                             const NarrowMoment& moment) {
  moment.chunk.scales[block] = stepped.scale.scale;
  if (!kSigned && stepped.scale.scale == kInfinity) {
    encode_overflown(kCodeBlock, codes_of(moment, block));
  }
}

// Steps block b into `now` and codes block b - 1, which is `before`, vector by vector. The integer
// work of coding runs during the latency of division and root.
template <class Rule, bool kSteps, bool kCodes, class Scalars>
HWY_INLINE void step_block(const ChunkOperands& chunk, const Scalars& scalars, Index b,
                           SteppedBlock& now, const SteppedBlock& before) {
  const Floats d;
  constexpr bool kM = Rule::kMomentum, kV = Rule::kSecondMoment;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), first = b * kCodeBlock;
  const NarrowMoment &momentum = chunk.narrow->momentum, &second = chunk.narrow->second_moment;
  FloatVec down_m = hn::Zero(d), down_v = down_m;
  if constexpr (kSteps && kM) down_m = decode_factor(momentum.chunk.scales[b]);
  if constexpr (kSteps && kV) down_v = decode_factor(second.chunk.scales[b]);
  CodecBits largest_m = hn::Zero(CodecWords()), largest_v = largest_m;
  CodecBits counters_m = block_counters(momentum, b - 1);
  CodecBits counters_v = block_counters(second, b - 1);
  for (Index i = 0; i < kCodeBlock; i += lanes) {
    if constexpr (kSteps) {
      FloatVec m = hn::Zero(d), v = m;
      if constexpr (kM) m = decode_vector<true>(codes_of(momentum, b) + i, down_m);
      if constexpr (kV) v = decode_vector<false>(codes_of(second, b) + i, down_v);
      prefetch_ahead(chunk.param + first + i);
      prefetch_ahead(chunk.grad + first + i);
      step_moments<Rule>(chunk, scalars, first + i, m, v);
      if constexpr (kM) keep(m, i, now.momentum, largest_m);
      if constexpr (kV) keep(v, i, now.second_moment, largest_v);
    }
    if constexpr (kCodes && kM) {
      code<true>(before.momentum, i, counters_m, codes_of(momentum, b - 1));
    }
    if constexpr (kCodes && kV) {
      code<false>(before.second_moment, i, counters_v, codes_of(second, b - 1));
    }
  }
  if constexpr (kCodes && kM) finish_codes<true>(before.momentum, b - 1, momentum);
  if constexpr (kCodes && kV) finish_codes<false>(before.second_moment, b - 1, second);
  if constexpr (kSteps && kM) now.momentum.scale = block_scale<true>(largest_m);
  if constexpr (kSteps && kV) now.second_moment.scale = block_scale<false>(largest_v);
}

template <class Rule, class Scalars>
HWY_INLINE void step_coded_moments(const ChunkOperands& chunk, const Scalars& scalars) {
  const Index blocks = chunk.length / kCodeBlock;
  SteppedBlock turns[2];
  step_block<Rule, true, false>(chunk, scalars, 0, turns[0], turns[1]);
  for (Index b = 1; b < blocks; ++b) {
    step_block<Rule, true, true>(chunk, scalars, b, turns[b % 2], turns[1 - b % 2]);
  }
  step_block<Rule, false, true>(chunk, scalars, blocks, turns[blocks % 2], turns[1 - blocks % 2]);
}

template <class Rule, class Scalars>
HWY_INLINE void step_narrow_moments(const ChunkOperands& chunk, const Scalars& scalars) {
  const NarrowMoments& moments = *chunk.narrow;
  const Dtype dtype = (Rule::kMomentum ? moments.momentum : moments.second_moment).chunk.dtype;
  dtype == Dtype::BFloat16 ? step_bf16_moments<Rule>(chunk, scalars)
                           : step_coded_moments<Rule>(chunk, scalars);
}

}  // namespace HWY_NAMESPACE
}  // namespace hone::kernels
HWY_AFTER_NAMESPACE();

#endif
